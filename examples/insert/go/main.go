// Command insert writes an order and the event that tells of it, in one transaction, with
// database/sql and pgx.
//
// Run it with DATABASE_URL set and an order id; with the word "fail" after it, it fails before the
// commit, and neither has ever been there.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib"
)

// Order is an order as a customer places it.
type Order struct {
	ID         string `json:"id"`
	CustomerID string `json:"customer_id"`
	TotalCents int64  `json:"total_cents"`
}

// placeOrder commits both rows or, when it returns an error, neither.
func placeOrder(ctx context.Context, db *sql.DB, order Order, fail bool) error {
	payload, err := json.Marshal(order)
	if err != nil {
		return err
	}
	// snippet:start
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // Does nothing after the commit.
	// The order's own row comes first. Its lock makes the transactions of one order take turns,
	// so that the ids of their events are in commit order.
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, customer_id, total_cents)
		VALUES ($1, $2, $3)`, order.ID, order.CustomerID, order.TotalCents); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		VALUES ('order', $1, 'order.created', $2)`, order.ID, payload); err != nil {
		return err
	}
	// snippet:end
	if fail {
		return errors.New("failed on purpose")
	}
	// snippet:start
	return tx.Commit()
	// snippet:end
}

func main() {
	log.SetFlags(0)
	url := os.Getenv("DATABASE_URL")
	if len(os.Args) < 2 || url == "" {
		log.Fatal("usage: DATABASE_URL=postgres://… insert ORDER_ID [fail]")
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	order := Order{ID: os.Args[1], CustomerID: "c-17", TotalCents: 1250}
	fail := len(os.Args) > 2 && os.Args[2] == "fail"
	if err := placeOrder(context.Background(), db, order, fail); err != nil {
		log.Fatalf("the order is not placed: %v", err)
	}
}
