// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slots of a decoder's frame pool: the decoder takes a slot for each picture, fills and releases it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use framepath_model::buffer_request::{BufferRequest, MOST_BUFFERS, ProvidedFormat};
use framepath_model::colors::Colors;
use framepath_model::format::PixelFormat;
use framepath_model::stream::FrameMeta;
use framepath_os::measure::meter;
use framepath_os::memory::pool::{Closer, Frame, GiveBack, Hold, Pool, PoolError};

use crate::surface::{DecodedPicture, Surface, output_format};
use crate::{CodecError, OutputFormat, ProviderRef};

/// Properties of a picture for which a decoder needs memory. Pictures with equal requests have
/// the same layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRequest {
    /// Format of the decoder's picture.
    pub(crate) decoded: PixelFormat,
    /// Width in pixels: the coded width, or the visible width of a picture that is copied.
    pub(crate) width: usize,
    /// Height in pixels: the coded height, or the visible height of a picture that is copied.
    pub(crate) height: usize,
}

/// Strides and rows, with padding, that a decoder requires for a [`SlotRequest`]; and properties of the
/// stream that a provider of memory needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Padded {
    /// Bytes from one row to the next of each plane; 0 for planes that the format does not have.
    pub(crate) strides: [usize; 4],
    /// Number of luma rows, padding included.
    pub(crate) rows: usize,
    /// Visible width and height, pixels.
    pub(crate) visible: (usize, usize),
    /// Number of pictures that the decoder keeps for this stream: references plus reorder delay. 0
    /// if the decoder does not report it (dav1d), and for pictures that are copied from
    /// libavcodec's own memory.
    pub(crate) references: u32,
    /// Colours that the stream declares.
    pub(crate) colors: Colors,
}

struct SlotsState {
    /// Current pool; `None` before the first picture.
    pool: Option<Pool>,
    /// Last request that got a layout, and this layout of a slot; `None` before the first picture.
    surface: Option<(SlotRequest, Surface)>,
}

/// Source of the slots of one decoder, with its current pool. The decoder's callbacks share this
/// value, and may run on any thread of the codec library.
pub(crate) struct Slots {
    codec: &'static str,
    output: OutputFormat,
    /// Number of slots of each pool that this `Slots` makes; not used with a provider.
    slots: u32,
    /// Number of slots that the error recommends if `slots` is not sufficient.
    advised: u32,
    /// Receiver of the frames that another process returns; `None` if no other process reads them.
    give_back: Option<&'static GiveBack>,
    /// Provider of the memory, and the number of slots to request in addition to
    /// [`Padded::references`] (together at most [`MOST_BUFFERS`]); `None` if this `Slots` makes its
    /// pools.
    provider: Option<(ProviderRef, u32)>,
    state: Mutex<SlotsState>,
    /// True after [`close`](Slots::close): no thread may wait for a slot any more.
    closed: AtomicBool,
    /// Handle that ends waits for a slot of the current pool; `None` before the first pool. Not
    /// inside `state`, because a thread that waits for a slot holds the lock of `state`.
    closer: Mutex<Option<Closer>>,
    /// True after a failure, until [`forget_failure`](Slots::forget_failure), even if `failure` was
    /// taken. With this flag, `has_failed` needs no lock.
    failed: AtomicBool,
    /// First failure that was not taken yet: the number of the packet whose picture could not be
    /// made, and the reason. `None` without a failure and after it was taken or forgotten. Kept
    /// here, because codec libraries pass at most an error number from a callback to the caller.
    failure: Mutex<Option<(i64, CodecError)>>,
}

impl Slots {
    /// Creates the slots of one decoder. The first pool is made when the decoder requests a slot. If
    /// another process reads the frames, `give_back` collects the slots that this other process returns.
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
            provider: None,
            state: Mutex::new(SlotsState { pool: None, surface: None }),
            closed: AtomicBool::new(false),
            closer: Mutex::new(None),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Makes the decoder use the memory of `provider`. The decoder needs `slots` slots in addition
    /// to [`Padded::references`], but requests at most [`MOST_BUFFERS`] slots.
    pub(crate) fn with_provider(self, provider: ProviderRef, slots: u32) -> Slots {
        Slots { provider: Some((provider, slots)), ..self }
    }

    pub(crate) fn codec(&self) -> &'static str {
        self.codec
    }

    /// Takes a slot for the picture of packet `number`. Calls `pad`, which returns the decoder's
    /// requirements, only if `request` differs from the last one that got a layout. Sleeps while
    /// later stages hold all slots, and waits for a provider that makes a new pool. Returns `None`
    /// if this call fails, or a failure was recorded since the last
    /// [`forget_failure`](Slots::forget_failure); [`take_failure`](Slots::take_failure) then
    /// returns the first failure, unless it was taken before.
    pub(crate) fn take(
        &self,
        number: i64,
        request: SlotRequest,
        pad: impl FnOnce() -> Padded,
    ) -> Option<Slot> {
        if self.has_failed() {
            return None;
        }
        match self.try_take(request, pad) {
            Ok(slot) => Some(slot),
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
                let (surface, pool) = match self.provider {
                    None => (self.divide(request, pad())?, None),
                    Some((provider, slots)) => self.request_memory(provider, slots, request, pad())?,
                };
                state.surface = Some((request, surface));
                if let Some(pool) = pool {
                    *unpoisoned(&self.closer) = Some(pool.closer());
                    state.pool = Some(pool);
                }
                surface
            }
        };
        // Keeps a pool whose slots are large enough: otherwise a stream that switches between
        // sizes would map a new pool at every switch. A slot of a replaced pool returns to that
        // pool when the last handle to the slot is dropped.
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
        // Acquire: pairs with the Release in `close`. This check comes after the closer was stored,
        // so either `close` finds the closer of this pool, or this thread sees the flag.
        if self.closed.load(Ordering::Acquire) {
            return Err(self.pool_error(PoolError::Closed));
        }
        let hold = pool.acquire_hold().map_err(|source| self.pool_error(source))?;
        Ok(Slot { hold, surface, codec: self.codec, converted: OnceLock::new() })
    }

    /// Wakes a decoder thread that waits for a slot, with an error. From now on every call for a slot
    /// fails. Slots in use stay valid.
    pub(crate) fn close(&self) {
        // Release: see `try_take`.
        self.closed.store(true, Ordering::Release);
        if let Some(closer) = &*unpoisoned(&self.closer) {
            closer.close();
        }
    }

    /// Computes the layout of a slot in a pool that this `Slots` makes. Fails if the output format is not
    /// possible or the slot exceeds the address space.
    fn divide(&self, request: SlotRequest, padded: Padded) -> Result<Surface, CodecError> {
        let output = output_format(self.codec, request.decoded, self.output)?;
        Surface::new(request.decoded, output, padded.strides, padded.rows)
            .ok_or_else(|| self.pool_error(PoolError::Size { slot_bytes: usize::MAX, slots: self.slots }))
    }

    /// Requests memory for pictures of `request` from the provider. Returns the layout of a slot,
    /// and the pool in that memory, never `None`. Fails if the decoder's format is neither YUV420P
    /// nor YUV420P10, if a size needs more than 32 bits, if the provider has no such memory, or if
    /// its slots are too small.
    fn request_memory(
        &self,
        ProviderRef(provider): ProviderRef,
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
        let surface =
            |output| Surface::adjacent(decoded, output, padded.strides[1], padded.rows).ok_or_else(too_large);
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
        let provided = meter::blocked(|| provider.provide(&want));
        let (pool, plane_format) = provided.map_err(|message| CodecError::Decoder {
            codec,
            operation: "decode into the provider's memory",
            message,
        })?;
        let surface = match plane_format {
            ProvidedFormat::Native => native,
            ProvidedFormat::Packed => packed,
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
                // `slots` was not sufficient, so recommends at least one more.
                let advised = self.advised.max(slots.saturating_add(1));
                CodecError::PoolTooSmall { codec: self.codec, slots, advised }
            }
            source => CodecError::Pool { codec: self.codec, source },
        }
    }

    /// Records `error`, the reason why the picture of packet `number` cannot be made, unless an
    /// earlier failure was recorded and not taken yet.
    pub(crate) fn fail(&self, number: i64, error: CodecError) {
        unpoisoned(&self.failure).get_or_insert((number, error));
        // Release: pairs with the Acquire in `has_failed`.
        self.failed.store(true, Ordering::Release);
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Forgets a failure, so that slots are provided again. Called when the decoder was flushed.
    pub(crate) fn forget_failure(&self) {
        *unpoisoned(&self.failure) = None;
        self.failed.store(false, Ordering::Release);
    }

    /// Takes the recorded failure; `None` if there is none, or if it was taken before.
    pub(crate) fn take_failure(&self) -> Option<(i64, CodecError)> {
        if self.has_failed() { unpoisoned(&self.failure).take() } else { None }
    }
}

/// Locks `mutex` even if a thread panicked while it held the lock: no code under these locks can leave
/// a value half changed.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Slot that the decoder holds, with the layout of the pictures in the slot.
pub(crate) struct Slot {
    hold: Hold,
    pub(crate) surface: Surface,
    codec: &'static str,
    /// Picture that was converted in this slot; empty before a conversion, and if none is needed.
    /// If the decoder outputs a picture twice, only the first output converts, because a reader may
    /// already read the result.
    converted: OnceLock<DecodedPicture>,
}

impl Slot {
    /// Returns the address of the slot's first byte, page-aligned.
    pub(crate) fn base(&self) -> *mut u8 {
        self.hold.as_ptr()
    }

    /// Returns the number of bytes of the slot.
    pub(crate) fn len(&self) -> usize {
        self.hold.len()
    }

    /// Makes a frame of the decoded picture. Converts the picture the first time if the output
    /// format requires it; the meter counts the bytes. `starts` has the address of the first
    /// visible pixel of each plane, `strides` the bytes between its rows. Fails if a plane is
    /// outside the slot, the layout is invalid, or the slot's picture was converted before with
    /// another layout.
    ///
    /// # Safety
    /// The decoder has finished the picture in this slot.
    pub(crate) unsafe fn frame(
        &self,
        (width, height): (u32, u32),
        starts: [*const u8; 4],
        strides: [usize; 4],
        colors: Colors,
        meta: FrameMeta,
    ) -> Result<Frame, CodecError> {
        let codec = self.codec;
        let mut offsets = [0; 4];
        let count = self.surface.decoded.plane_count();
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
                        operation: "output a picture again",
                        message: "its size has changed".into(),
                    });
                }
                None => {
                    meter::copy(picture.converted_bytes(), || {
                        // SAFETY: the layouts fit the slot, and the caller guarantees that the
                        // decoder has finished the picture. Other code reads the written areas only
                        // through frames. No frame of this slot exists before `converted` is set,
                        // because frames are made on one thread.
                        unsafe { picture.convert(self.base()) }
                    });
                    let _ = self.converted.set(picture);
                }
            }
        }
        self.hold.frame(&picture.to.with_colors(colors), meta).map_err(layout_error)
    }
}
