// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hook for measurements: a function of the program that runs on libavcodec's decoding threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

type Hook = Arc<dyn Fn(u64) + Send + Sync>;

/// True while a hook is installed. Without a hook, each picture costs one atomic load.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
static HOOK: RwLock<Option<Hook>> = RwLock::new(None);

/// Handle of an installed hook. Dropping any handle removes the hook that is installed then, also
/// if a later [`install`](BufferHook::install) has replaced the handle's own hook.
///
/// For measurements: injects a known cost into a decoder. The hook runs for each picture that a
/// [`Decoder`](crate::Decoder) of this process decodes with a software decoder of libavcodec, when
/// libavcodec requests memory for the picture, after framepath has recorded that the decoding
/// begins. The hook runs on the decoding thread, and again if libavcodec requests memory for the
/// same picture again. It does not run for hidden pictures, for AV1 pictures, which dav1d decodes,
/// and for pictures of hardware decoders.
#[derive(Debug)]
pub struct BufferHook(());

impl BufferHook {
    /// Installs `hook`, which gets the number of the picture's packet: 0 for the first packet of a decoder.
    /// Replaces an installed hook. Decoders may call it on several threads at once. A panic in it aborts the
    /// process.
    pub fn install(hook: impl Fn(u64) + Send + Sync + 'static) -> BufferHook {
        *HOOK.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(hook));
        // Release: pairs with the Acquire in `call`.
        IS_INSTALLED.store(true, Ordering::Release);
        BufferHook(())
    }
}

impl Drop for BufferHook {
    fn drop(&mut self) {
        IS_INSTALLED.store(false, Ordering::Release);
        *HOOK.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Calls the installed hook, if any, for the picture of packet `number`; not for a negative number, which a hidden
/// picture has.
#[inline]
pub(crate) fn call(number: i64) {
    if IS_INSTALLED.load(Ordering::Acquire) {
        if let Ok(number) = u64::try_from(number) {
            // The lock is released before the call, so that the pictures of several threads overlap.
            let hook = HOOK.read().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(hook) = hook {
                hook(number);
            }
        }
    }
}
