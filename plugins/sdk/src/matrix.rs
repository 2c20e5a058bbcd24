//! The numbers that candidates are scored by.

use crate::Failure;

/// A row a candidate, and in each a column for every feature that the plugin asked for. What isn't known is NaN.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    /// A matrix of the rows that the values make, one after the other.
    pub fn new(columns: usize, values: Vec<f64>) -> Result<Self, Failure> {
        if values.len().checked_rem(columns).unwrap_or(values.len()) != 0 {
            return Err(Failure::refusal(format!("{} values don't make rows of {columns}", values.len())));
        }
        Ok(Self { columns, values })
    }

    /// The number of features.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// A row for each candidate.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.values.chunks_exact(self.columns.max(1))
    }

    /// One candidate's row.
    pub fn row(&self, index: usize) -> Option<&[f64]> {
        self.rows().nth(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_as_long_as_there_are_features() {
        let matrix = Matrix::new(2, vec![1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(matrix.rows().collect::<Vec<_>>(), [[1.0, 2.0], [3.0, 4.0]]);
        assert_eq!((matrix.row(1), matrix.row(2)), (Some([3.0, 4.0].as_slice()), None));
        assert_eq!(Matrix::new(0, Vec::new()).unwrap().rows().len(), 0);
    }

    #[test]
    fn half_a_row_is_refused() {
        assert!(Matrix::new(2, vec![1.0]).is_err());
        assert!(Matrix::new(0, vec![1.0]).is_err());
    }
}
