//! The matrix of features that a plugin scores candidates by.

use crate::Failure;

/// One row per candidate, and in each row one column per feature that the plugin requested. An unknown value is NaN.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    /// Splits the values into rows of `columns` values each.
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

    /// One row per candidate.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.values.chunks_exact(self.columns.max(1))
    }

    /// The row of one candidate.
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
