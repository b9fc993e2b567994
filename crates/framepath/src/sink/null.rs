// SPDX-License-Identifier: MIT OR Apache-2.0
//! `null`: takes frames and packets and gives them back to their pool.

use framepath_model::stream::StreamInfo;

use crate::error::StageError;
use crate::item::Item;
use crate::out::{Failure, Out};
use crate::stage::Stage;

pub(crate) struct Null;

impl Stage for Null {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    #[inline]
    fn push(&mut self, item: Item, _: &mut Out<'_>) -> Result<(), Failure> {
        drop(item);
        Ok(())
    }
}
