//! The sources of a node's parts, in sentences.

use super::{
    parts::{PARTS, Prices, distance},
    row::Row,
};

const NO_ACCELERATORS: &str = "The pod requests no accelerators";

impl Row {
    /// The source of each part, in the order of `NodePlacement::in_order`: a code, and the start of a sentence.
    pub(super) fn sources(&self, prices: Prices, spreads: bool) -> [(&'static str, String); PARTS] {
        [
            ("Model", self.model_source()),
            ("Gang", self.gang_source()),
            ("Packing", self.packed(spreads, Self::packing_source)),
            ("Domain", self.packed(spreads, Self::domain_source)),
            ("Spread", self.spread_source()),
            ("Proximity", self.proximity_source()),
            ("Adjacency", self.adjacency_source()),
            ("Images", self.images_source()),
            ("Spot", self.spot_source()),
            ("Price", self.price_source(prices)),
        ]
    }

    fn model_source(&self) -> String {
        if self.model_present.is_nan() {
            "The pod names no model".to_owned()
        } else if self.model_present > 0.5 {
            "It has the model".to_owned()
        } else if !self.seconds_left.is_nan() {
            format!("It will have the model in {:.0} s", self.seconds_left)
        } else if self.download_share > 0.0 {
            format!("It has {:.0} % of the model, and the rest has no known time", self.download_share * 100.0)
        } else {
            "It has nothing of the model".to_owned()
        }
    }

    fn gang_source(&self) -> String {
        if !self.is_in_gang() {
            return "The pod is in no gang".to_owned();
        }
        let placed = match distance(self.gang_distance) {
            None => "No pod of the gang is placed".to_owned(),
            Some((_, place)) if self.gang_placed.is_nan() => format!("The farthest placed pod of the gang is {place}"),
            Some((_, place)) => format!("Of the gang's {} placed pods the farthest is {place}", self.gang_placed),
        };
        let room = known(self.gang_spare, "it is in no domain", |spare| {
            if spare < 0.0 {
                format!("its domain lacks {} accelerators for the rest of the gang", -spare)
            } else {
                format!("its domain has {spare} free accelerators more than the rest of the gang needs")
            }
        });
        format!("{placed}, and {room}")
    }

    /// The source of a part that has no effect in a zone with more replicas than another.
    fn packed(&self, spreads: bool, source: fn(&Self) -> String) -> String {
        if spreads && self.is_crowded() {
            return "Its zone has more replicas of the pod than another, so nothing is packed there".to_owned();
        }
        source(self)
    }

    fn packing_source(&self) -> String {
        let Self { allocatable, free, requested, .. } = self;
        if self.is_copy_of_model() {
            return format!("{free} of its {allocatable} accelerators are free for the pods that will use the model");
        }
        if !self.requests_accelerators() {
            return known(requested + free + allocatable, "Its accelerators, or those that the pod requests, are unknown", |_| {
                format!("{free} of its {allocatable} accelerators are free, and the pod requests none")
            });
        }
        known(self.left(), "Its remaining accelerators are unknown", |left| {
            if left < 0.0 {
                format!("{free} of its {allocatable} accelerators are free, and the pod requests {requested}")
            } else if self.is_wholly_free() && left > 0.0 {
                format!("{left} accelerators remain on a node that was wholly free")
            } else {
                format!("{left} accelerators remain")
            }
        })
    }

    fn domain_source(&self) -> String {
        if self.is_in_gang() {
            return "The gang's score already counts the room in its domain".to_owned();
        }
        if !self.requests_accelerators() {
            return NO_ACCELERATORS.to_owned();
        }
        known(self.domain_taken + self.free_nodes, "It is in no domain", |_| {
            let (taken, free) = (self.domain_taken * 100.0, self.all_free_nodes());
            format!("{taken:.0} % of its domain's accelerators are in use, and {free} of its nodes are wholly free")
        })
    }

    fn spread_source(&self) -> String {
        if self.is_in_gang() {
            return "Pods of a gang aren't spread".to_owned();
        }
        let zone = known(self.zone_spread, "Its zone is unknown", |more| {
            format!("Its zone has {more} replicas of the pod more than the zone with the fewest")
        });
        let node = known(self.replicas, "its own number is unknown", |replicas| format!("it has {replicas}"));
        format!("{zone}, and {node}")
    }

    fn proximity_source(&self) -> String {
        if !self.requests_accelerators() {
            return NO_ACCELERATORS.to_owned();
        }
        match distance(self.peer_distance) {
            Some((_, place)) => format!("The nearest pod with another role is {place}"),
            None => "No pod with another role is placed".to_owned(),
        }
    }

    fn adjacency_source(&self) -> String {
        if !self.requests_accelerators() {
            return NO_ACCELERATORS.to_owned();
        }
        known(self.adjacent, "The links between its accelerators are unknown", |adjacent| {
            format!("{adjacent} of its free accelerators are linked to one another, and the pod requests {}", self.requested)
        })
    }

    fn images_source(&self) -> String {
        known(self.images, "It is unknown which of the pod's images it has", |share| {
            format!("It has {:.0} % of the pod's images", share * 100.0)
        })
    }

    fn spot_source(&self) -> String {
        known(self.spot, "It is unknown whether it is a spot node", |spot| {
            let sentence = if spot > 0.5 { "It is a spot node" } else { "It isn't a spot node" };
            sentence.to_owned()
        })
    }

    fn price_source(&self, prices: Prices) -> String {
        known(self.price, "Its price is unknown", |price| {
            format!("It costs {price}, and the candidates {} to {}", prices.least, prices.most)
        })
    }
}

/// A sentence about a value, or a different one if the value is unknown.
fn known(value: f64, unknown: &str, sentence: impl FnOnce(f64) -> String) -> String {
    if value.is_nan() { unknown.to_owned() } else { sentence(value) }
}
