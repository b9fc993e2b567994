// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table of a report's hops, which data frame libraries read by Arrow's PyCapsule interface
//! (<https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>).

use std::ffi::CStr;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, StringArray, UInt64Array};
use arrow_schema::ArrowError;
use arrow_schema::ffi::FFI_ArrowSchema;
use framepath::Report;
use framepath::ledger::CAUSES;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";

/// Table with a row for each hop.
#[pyclass(frozen, name = "Table", module = "framepath")]
pub struct PyTable {
    columns: Vec<(String, ArrayRef)>,
}

impl PyTable {
    pub(crate) fn of(report: &mut Report) -> PyTable {
        let digest = report.digest();
        let hops = || digest.hops.iter();
        let names = report.hops.iter().map(|hop| hop.text.clone()).take(digest.hops.len());
        let micros = |values: Vec<Option<f64>>| -> ArrayRef {
            Arc::new(Float64Array::from_iter(values.into_iter().map(|ns| ns.map(|ns| ns / 1e3))))
        };
        let columns: [(&str, ArrayRef); 8] = [
            ("hop", Arc::new(StringArray::from_iter_values(names))),
            ("frames", Arc::new(UInt64Array::from_iter_values(hops().map(|hop| hop.frames)))),
            ("dropped", Arc::new(UInt64Array::from_iter_values(hops().map(|hop| hop.dropped)))),
            ("wall_p50_us", micros(hops().map(|hop| Some(hop.wall.p50 as f64)).collect())),
            ("wall_p99_us", micros(hops().map(|hop| Some(hop.wall.p99 as f64)).collect())),
            ("cpu_us", micros(hops().map(|hop| hop.cpu_ns.map(|ns| ns as f64)).collect())),
            ("copied_bytes", Arc::new(Float64Array::from_iter_values(hops().map(|hop| hop.copied_bytes)))),
            ("switches", Arc::new(Float64Array::from_iter(hops().map(|hop| hop.switches)))),
        ];
        let mut columns: Vec<_> =
            columns.into_iter().map(|(name, values)| (name.to_owned(), values)).collect();
        for cause in CAUSES {
            columns.push((
                format!("{}_us", cause.name()),
                micros(hops().map(|hop| hop.median[cause]).collect()),
            ));
        }
        PyTable { columns }
    }

    fn batch(&self) -> Result<RecordBatch, ArrowError> {
        RecordBatch::try_from_iter_with_nullable(
            self.columns.iter().map(|(name, values)| (name.as_str(), values.clone(), name != "hop")),
        )
    }
}

fn error(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl PyTable {
    #[getter]
    fn columns(&self) -> Vec<&str> {
        self.columns.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the table as a dictionary of lists.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let table = PyDict::new(py);
        for (name, values) in &self.columns {
            if let Some(texts) = values.as_any().downcast_ref::<StringArray>() {
                table.set_item(name, texts.iter().collect::<Vec<_>>())?;
            } else if let Some(counts) = values.as_any().downcast_ref::<UInt64Array>() {
                table.set_item(name, counts.iter().collect::<Vec<_>>())?;
            } else if let Some(numbers) = values.as_any().downcast_ref::<Float64Array>() {
                table.set_item(name, numbers.iter().collect::<Vec<_>>())?;
            }
        }
        Ok(table)
    }

    fn __len__(&self) -> usize {
        self.columns[0].1.len()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch().map_err(error)?.schema().as_ref());
        PyCapsule::new_with_value(py, schema.map_err(error)?, SCHEMA)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A consumer casts by itself where a producer has one schema only.
        let _ = requested_schema;
        let batch = self.batch().map_err(error)?;
        let schema = batch.schema();
        let batches = RecordBatchIterator::new([Ok(batch)], schema);
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), STREAM)
    }

    fn __repr__(&self) -> String {
        format!("<framepath.Table of {} hops, {} columns>", self.__len__(), self.columns.len())
    }
}
