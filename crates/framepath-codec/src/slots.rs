// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pool slots as decoders take, fill and release them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use framepath_model::buffer_request::{BufferRequest, LentFormat, MOST_BUFFERS};
use framepath_model::colors::Colors;
use framepath_model::format::PixelFormat;
use framepath_model::stream::FrameMeta;
use framepath_os::measure::meter;
use framepath_os::memory::pool::{Closer, Frame, GiveBack, Hold, Pool, PoolError};

use crate::surface::{DecodedPicture, Surface, output_format};
use crate::{CodecError, OutputFormat, ProviderRef};

/// Properties of a picture that a decoder needs memory for. Pictures with equal requests
/// have the same layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRequest {
    /// The decoder's own format.
    pub(crate) decoded: PixelFormat,
    /// Width in pixels as the decoder codes it.
    pub(crate) width: usize,
    /// Height in pixels as the decoder codes it.
    pub(crate) height: usize,
}

/// Strides and rows that a decoder requires for a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Padded {
    /// Bytes from row to row of luma.
    pub(crate) stride: usize,
    /// Bytes from row to row of each chroma plane.
    pub(crate) chroma_stride: usize,
    /// Rows of luma.
    pub(crate) rows: usize,
    /// Visible pixels of a row, and visible rows.
    pub(crate) visible: (usize, usize),
    /// Number of pictures that this stream keeps, as far as the decoder reports it.
    pub(crate) references: u32,
    /// Colours that the stream declares.
    pub(crate) colors: Colors,
}

struct SlotsState {
    pool: Option<Pool>,
    /// The division of a slot made for the last request.
    surface: Option<(SlotRequest, Surface)>,
}

/// The pool behind one decoder. Shared with its callbacks, which may run on
/// any of the library's threads.
pub(crate) struct Slots {
    codec: &'static str,
    output: OutputFormat,
    slots: u32,
    advised: u32,
    give_back: Option<&'static GiveBack>,
    /// Provider of the memory, and the number of slots to ask for besides the references.
    lender: Option<(ProviderRef, u32)>,
    state: Mutex<SlotsState>,
    /// True once no slot is waited for any more.
    closed: AtomicBool,
    /// Ends the waits of the current pool. Outside of `state`, which a thread keeps
    /// locked while it waits.
    closer: Mutex<Option<Closer>>,
    /// Set with `failure`, so that a check needs no lock.
    failed: AtomicBool,
    /// Reason why a slot could not be given: libraries pass on a number at best.
    failure: Mutex<Option<(i64, CodecError)>>,
}

impl Slots {
    /// Makes slots of one pool after the other; `give_back` is for pools that another
    /// process reads.
    pub(crate) fn new(
        codec: &'static str,
        output: OutputFormat,
        slots: u32,
        advised: u32,
        give_back: Option<&'static GiveBack>,
    ) -> Slots {
        Slots {
            codec,
            output,
            slots,
            advised,
            give_back,
            lender: None,
            state: Mutex::new(SlotsState { pool: None, surface: None }),
            closed: AtomicBool::new(false),
            closer: Mutex::new(None),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Decodes into the memory of `lender`. The decoder needs `slots` slots besides the
    /// references that the stream declares.
    pub(crate) fn lent_by(self, lender: ProviderRef, slots: u32) -> Slots {
        Slots { lender: Some((lender, slots)), ..self }
    }

    pub(crate) fn codec(&self) -> &'static str {
        self.codec
    }

    /// Takes a slot for a picture. `pad` returns the decoder's requirements, and is
    /// called only when the request differs from the last one. Sleeps while later stages
    /// hold all slots. `None` after a failure, which is kept for
    /// [`take_failure`](Slots::take_failure) with the `number` of the packet.
    pub(crate) fn take(
        &self,
        number: i64,
        request: SlotRequest,
        pad: impl FnOnce() -> Padded,
    ) -> Option<Box<Slot>> {
        if self.has_failed() {
            return None;
        }
        match self.try_take(request, pad) {
            Ok(slot) => Some(Box::new(slot)),
            Err(error) => {
                self.fail(number, error);
                None
            }
        }
    }

    fn try_take(&self, request: SlotRequest, pad: impl FnOnce() -> Padded) -> Result<Slot, CodecError> {
        let mut state = unpoisoned(&self.state);
        let surface = match state.surface {
            Some((last, surface)) if last == request => surface,
            _ => {
                let (surface, pool) = match self.lender {
                    None => (self.divide(request, pad())?, None),
                    Some((lender, slots)) => self.borrow(lender, slots, request, pad())?,
                };
                state.surface = Some((request, surface));
                if let Some(pool) = pool {
                    *unpoisoned(&self.closer) = Some(pool.closer());
                    state.pool = Some(pool);
                }
                surface
            }
        };
        // A pool whose slots are large enough stays: otherwise a stream that switches
        // between sizes would map a new pool at every switch. The slots of a replaced
        // pool return to it as their frames end.
        let pool = match &mut state.pool {
            Some(pool) if pool.slot_bytes() >= surface.bytes => pool,
            place => {
                let pool = match self.give_back {
                    None => Pool::new(surface.bytes, self.slots),
                    Some(give_back) => Pool::new_shared(surface.bytes, self.slots, give_back),
                };
                let pool = pool.map_err(|source| self.pool_error(source))?;
                *unpoisoned(&self.closer) = Some(pool.closer());
                place.insert(pool)
            }
        };
        // Acquire: pairs with the Release in `close`. After the lock of the closer:
        // either `close` found this pool's closer, or the flag is seen here.
        if self.closed.load(Ordering::Acquire) {
            return Err(self.pool_error(PoolError::Closed));
        }
        let hold = pool.acquire_hold().map_err(|source| self.pool_error(source))?;
        Ok(Slot { hold, surface, codec: self.codec, converted: OnceLock::new() })
    }

    /// Ends the wait for a slot that a thread of the decoder may be in, and gives none
    /// from now on. Slots that are out stay valid.
    pub(crate) fn close(&self) {
        // Release: see `try_take`.
        self.closed.store(true, Ordering::Release);
        if let Some(closer) = &*unpoisoned(&self.closer) {
            closer.close();
        }
    }

    fn divide(&self, request: SlotRequest, padded: Padded) -> Result<Surface, CodecError> {
        let given = output_format(self.codec, request.decoded, self.output)?;
        let Padded { stride, chroma_stride, rows, .. } = padded;
        Surface::new(request.decoded, given, stride, chroma_stride, rows)
            .ok_or_else(|| self.pool_error(PoolError::Size { slot_bytes: usize::MAX, slots: self.slots }))
    }

    /// Takes memory of the provider, for pictures of one size from now on.
    fn borrow(
        &self,
        ProviderRef(lender): ProviderRef,
        slots: u32,
        request: SlotRequest,
        padded: Padded,
    ) -> Result<(Surface, Option<Pool>), CodecError> {
        let (codec, decoded) = (self.codec, request.decoded);
        let packed = output_format(
            codec,
            decoded,
            if decoded == PixelFormat::Yuv420p { OutputFormat::Nv12 } else { OutputFormat::P010 },
        )?;
        let too_large = || self.pool_error(PoolError::Size { slot_bytes: usize::MAX, slots });
        let surface = |given| {
            Surface::adjacent(decoded, given, padded.chroma_stride, padded.rows).ok_or_else(too_large)
        };
        let (native, packed) = (surface(decoded)?, surface(packed)?);
        let number = |bytes: usize| u32::try_from(bytes).map_err(|_| too_large());
        let want = BufferRequest {
            decoded,
            width: number(padded.visible.0)?,
            height: number(padded.visible.1)?,
            stride: number(native.areas[0].stride)?,
            rows: number(native.areas[0].rows)?,
            native_bytes: number(native.bytes)?,
            packed_bytes: number(packed.bytes)?,
            buffers: slots.saturating_add(padded.references).min(MOST_BUFFERS),
            colors: padded.colors,
        };
        let lent = meter::blocked(|| lender.provide(&want));
        let (pool, lent) = lent.map_err(|message| CodecError::Decoder {
            codec,
            operation: "decode into the memory that was lent",
            message,
        })?;
        let surface = match lent {
            LentFormat::Native => native,
            LentFormat::Packed => packed,
        };
        if pool.slot_bytes() < surface.bytes {
            return Err(
                self.pool_error(PoolError::Size { slot_bytes: pool.slot_bytes(), slots: pool.slots() })
            );
        }
        Ok((surface, Some(pool)))
    }

    fn pool_error(&self, source: PoolError) -> CodecError {
        match source {
            PoolError::Starved { slots } => {
                // Never advises a number that did not suffice.
                let advised = self.advised.max(slots.saturating_add(1));
                CodecError::PoolTooSmall { codec: self.codec, slots, advised }
            }
            source => CodecError::Pool { codec: self.codec, source },
        }
    }

    /// Records the reason why the picture of packet `number` cannot be made; only the
    /// first failure is kept.
    pub(crate) fn fail(&self, number: i64, error: CodecError) {
        unpoisoned(&self.failure).get_or_insert((number, error));
        // Release: pairs with the Acquire in `has_failed`.
        self.failed.store(true, Ordering::Release);
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Gives slots again after a failure: the decoder was flushed.
    pub(crate) fn forget_failure(&self) {
        *unpoisoned(&self.failure) = None;
        self.failed.store(false, Ordering::Release);
    }

    /// Takes the first failure; later calls return `None`.
    pub(crate) fn take_failure(&self) -> Option<(i64, CodecError)> {
        if self.has_failed() { unpoisoned(&self.failure).take() } else { None }
    }
}

/// Locks a mutex, also after a panic: no value under these locks is left half changed by
/// one.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A slot while the decoder keeps it.
pub(crate) struct Slot {
    hold: Hold,
    pub(crate) surface: Surface,
    codec: &'static str,
    /// The conversion already done in this slot: a picture shown twice is converted once,
    /// and never while its first frame is being read.
    converted: OnceLock<DecodedPicture>,
}

impl Slot {
    /// Returns the address of the first byte, page-aligned.
    pub(crate) fn base(&self) -> *mut u8 {
        self.hold.as_ptr()
    }

    /// Returns the number of bytes of the slot.
    pub(crate) fn len(&self) -> usize {
        self.hold.len()
    }

    /// Makes a frame of the decoded picture, converted if required. `starts` are the
    /// addresses of the first visible pixel of each plane.
    ///
    /// # Safety
    /// The decoder has finished the picture.
    pub(crate) unsafe fn frame(
        &self,
        (width, height): (u32, u32),
        starts: [*const u8; 3],
        strides: [usize; 3],
        colors: Colors,
        meta: FrameMeta,
    ) -> Result<Frame, CodecError> {
        let codec = self.codec;
        let mut offsets = [0; 3];
        let count = if self.surface.decoded == PixelFormat::Grey { 1 } else { 3 };
        for (offset, start) in offsets.iter_mut().zip(starts).take(count) {
            *offset = (start as usize)
                .checked_sub(self.base() as usize)
                .filter(|offset| *offset < self.len())
                .ok_or(CodecError::OutsideSlot { codec })?;
        }
        let layout_error = |source| CodecError::Layout { codec, source };
        let picture = self.surface.layouts(width, height, offsets, strides).map_err(layout_error)?;
        if !picture.fits(self.len()) {
            return Err(CodecError::OutsideSlot { codec });
        }
        if picture.needs_conversion() {
            match self.converted.get() {
                Some(done) if *done == picture => {}
                Some(_) => {
                    return Err(CodecError::Decoder {
                        codec,
                        operation: "give a picture out again",
                        message: "its size changed in between".into(),
                    });
                }
                None => {
                    meter::copy(picture.converted_bytes(), || {
                        // SAFETY: the layouts fit the slot. The picture is
                        // finished by the caller's word. The areas written are
                        // read only through frames, and none exists before
                        // `converted` is set; frames are made on one thread.
                        unsafe { picture.convert(self.base()) }
                    });
                    let _ = self.converted.set(picture);
                }
            }
        }
        self.hold.frame(&picture.to.with_colors(colors), meta).map_err(layout_error)
    }
}
