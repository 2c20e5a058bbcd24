//! The features of a node, by the columns of the matrix.

macro_rules! columns {
    ($($field:ident $name:literal from $least:expr;)*) => {
        /// The columns of the matrix.
        pub const FEATURES: [&str; [$($name),*].len()] = [$($name),*];

        /// The features of a node. Unknown ones are NaN. No value is infinite, so that differences and quotients of two are numbers.
        #[derive(Clone, Copy)]
        pub(super) struct Row {
            $(pub(super) $field: f64,)*
        }

        impl Row {
            pub(super) fn new(given: &[f64]) -> Self {
                let mut given = given.iter();
                Self { $($field: given.next().map_or(f64::NAN, |value| value.clamp($least, f64::MAX)),)* }
            }
        }
    };
}

columns! {
    allocatable "allocatable-accelerators" from 0.0;
    free "free-accelerators" from 0.0;
    requested "requested-accelerators" from 0.0;
    adjacent "adjacent-accelerators" from 0.0;
    node_is_free "node-is-free" from 0.0;
    model_present "model-present" from 0.0;
    download_share "model-download-share" from 0.0;
    seconds_left "model-seconds-left" from 0.0;
    replicas "subject-pods" from 0.0;
    zone_spread "zone-spread" from 0.0;
    peer_distance "peer-distance" from 0.0;
    gang_size "gang-size" from 0.0;
    gang_placed "gang-placed" from 0.0;
    gang_distance "gang-distance" from 0.0;
    free_nodes "domain-free-nodes" from 0.0;
    domain_taken "domain-accelerators-taken-share" from 0.0;
    gang_spare "gang-domain-free-accelerators" from f64::MIN;
    images "image-share" from 0.0;
    spot "spot" from 0.0;
    price "price" from 0.0;
}

impl Row {
    /// Whether the pod is one of several that must run together. The size of Kubernetes' native gangs may be unknown.
    pub(super) fn is_in_gang(&self) -> bool {
        self.gang_size > 1.0 || !self.gang_distance.is_nan() || !self.gang_spare.is_nan()
    }

    /// Whether the question is about a copy of a model. Its pods are created later, and their requests are unknown.
    pub(super) fn is_copy_of_model(&self) -> bool {
        self.requested.is_nan() && !self.free.is_nan()
    }

    pub(super) fn is_wholly_free(&self) -> bool {
        self.node_is_free > 0.5
    }

    pub(super) fn requests_accelerators(&self) -> bool {
        self.requested > 0.0
    }
}
