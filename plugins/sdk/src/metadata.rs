//! Short ways to carry labels and annotations.

use crate::{
    Reason,
    bindings::exports::pointsman::policy::metadata_propagation::{Answer, Dropped, Placed, Request, Sort},
};

impl Answer {
    /// What the target has so far: the answer of a plugin that changes nothing.
    pub fn of(request: Request) -> Self {
        Self { labels: request.labels, annotations: request.annotations, dropped: Vec::new(), reasons: Vec::new() }
    }

    /// Gives the target a label, in place of one of the same key.
    pub fn put_label(&mut self, key: impl Into<String>, value: impl Into<String>, layer: impl Into<String>) {
        put(&mut self.labels, Placed { key: key.into(), value: value.into(), layer: layer.into() });
    }

    /// Gives the target an annotation, in place of one of the same key.
    pub fn put_annotation(&mut self, key: impl Into<String>, value: impl Into<String>, layer: impl Into<String>) {
        put(&mut self.annotations, Placed { key: key.into(), value: value.into(), layer: layer.into() });
    }

    /// Takes the label away, and says why.
    pub fn drop_label(&mut self, key: &str, reason: Reason) {
        drop_key(&mut self.labels, &mut self.dropped, Sort::Label, key, reason);
    }

    /// Takes the annotation away, and says why.
    pub fn drop_annotation(&mut self, key: &str, reason: Reason) {
        drop_key(&mut self.annotations, &mut self.dropped, Sort::Annotation, key, reason);
    }
}

fn put(placed: &mut Vec<Placed>, new: Placed) {
    match placed.iter_mut().find(|old| old.key == new.key) {
        Some(old) => *old = new,
        None => placed.push(new),
    }
}

fn drop_key(placed: &mut Vec<Placed>, dropped: &mut Vec<Dropped>, sort: Sort, key: &str, reason: Reason) {
    if let Some(index) = placed.iter().position(|old| old.key == key) {
        let Placed { key, layer, .. } = placed.remove(index);
        dropped.push(Dropped { sort, key, layer, reason });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason;

    #[test]
    fn a_label_takes_the_place_of_its_namesake() {
        let mut answer = Answer::of(Request::default());
        answer.put_label("a", "1", "subject");
        answer.put_label("b", "2", "subject");
        answer.put_label("a", "3", "plugin");
        let seen: Vec<_> = answer.labels.iter().map(|l| (l.key.as_str(), l.value.as_str(), l.layer.as_str())).collect();
        assert_eq!(seen, [("a", "3", "plugin"), ("b", "2", "subject")]);
    }

    #[test]
    fn what_is_dropped_is_told() {
        let mut answer = Answer::of(Request::default());
        answer.put_annotation("a", "1", "subject");
        answer.drop_annotation("a", reason("Private", "It is nobody's business."));
        answer.drop_annotation("b", reason("Private", "It is nobody's business."));
        assert!(answer.annotations.is_empty());
        let seen: Vec<_> = answer.dropped.iter().map(|d| (d.sort, d.key.as_str(), d.layer.as_str())).collect();
        assert_eq!(seen, [(Sort::Annotation, "a", "subject")]);
    }
}
