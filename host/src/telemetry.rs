//! Temporary stand-in.
#![allow(missing_docs)]
use crate::store::{Action, LaneStats};
use std::time::Duration;
pub struct LaneMetrics;
impl LaneMetrics {
    pub fn waited(&self, _: Duration) {}
    pub fn worked(&self, _: Duration, _: usize) {}
    pub fn transformed(&self, _: Duration) {}
    pub fn published_in(&self, _: Duration) {}
    pub fn settled_in(&self, _: Duration) {}
    pub fn claimed(&self, _: Duration) {}
    pub fn deliveries(&self, _: u64) {}
    pub fn action(&self, _: &Action) {}
    pub fn lost(&self, _: usize, _: usize) {}
    pub fn in_flight(&self, _: usize) {}
    pub fn paused(&self, _: crate::failure::Cause) {}
    pub fn resumed(&self) {}
    pub fn standing(&self, _: &LaneStats) {}
}
