// SPDX-License-Identifier: MIT OR Apache-2.0
//! SDL2, loaded at its first use.
//!
//! A program that names libSDL2 in its dynamic section loads it and about 23 libraries of X11,
//! Wayland and sound at every start, although only `play` with a window calls SDL. To avoid this,
//! the module defines the C functions that the crate `sdl2` calls. Each definition forwards to
//! the function of the same name in the shared library. The linker finds the definitions here and
//! does not link libSDL2 (`docs/decisions/0014-play.md`).
//!
//! Any thread may call [`load`]. The functions themselves may only be called on the thread that
//! called `SDL_Init`, as SDL's documentation requires; the types of the crate `sdl2` enforce
//! this.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use sdl2::sys::{
    self, SDL_Event, SDL_Rect, SDL_Renderer, SDL_RendererInfo, SDL_Surface, SDL_SysWMinfo, SDL_Texture,
    SDL_Window, SDL_YUV_CONVERSION_MODE, SDL_bool, SDL_version, Uint32,
};

/// Name of the shared library, the same in SDL 2.0 to 2.32 and in sdl2-compat.
const SONAME: &str = "libSDL2-2.0.so.0";

/// Reason why SDL2 cannot be used on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SdlError {
    /// The dynamic linker does not find or accept the library.
    #[error("cannot load {library}; install SDL2 (Debian and Ubuntu: apt install libsdl2-2.0-0): {reason}")]
    Library {
        /// Name of the shared library.
        library: String,
        /// Text of dlerror(3).
        reason: String,
    },
    /// The library lacks a function that this module forwards to, so it is too old.
    #[error("{library} is too old; install SDL 2.0.8 or newer: {reason}")]
    Function {
        /// Name of the shared library.
        library: String,
        /// Text of dlerror(3).
        reason: String,
    },
}

/// Loads SDL2; does nothing if it is already loaded. A failure is permanent: later calls return
/// the same error.
///
/// The program calls this before anything of the crate `sdl2`. An SDL function that is called earlier
/// loads the library itself, and aborts the process if that fails, because most SDL functions cannot
/// return an error.
pub fn load() -> Result<(), SdlError> {
    functions().map(|_| ())
}

/// Loads SDL2 as [`load`] does, and returns the version of the library, as `2.26.5`.
pub fn version() -> Result<String, SdlError> {
    load()?;
    Ok(sdl2::version::version().to_string())
}

fn functions() -> Result<&'static Functions, SdlError> {
    static FUNCTIONS: OnceLock<Result<Functions, SdlError>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| Functions::open(SONAME)).as_ref().map_err(SdlError::clone)
}

fn functions_or_abort() -> &'static Functions {
    functions().unwrap_or_else(|error| {
        eprintln!("framepath: SDL: a function was called, but the library cannot be loaded: {error}");
        std::process::abort()
    })
}

/// Defines the table of addresses, and for each function the symbol that forwards
/// to its address.
macro_rules! forward {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// Addresses of the functions in the loaded library.
        #[allow(non_snake_case)]
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
            /// Keeps the library loaded.
            _library: Library,
        }

        impl Functions {
            fn open(library: &str) -> Result<Functions, SdlError> {
                // SAFETY: the initialisers of SDL2 and of its dependencies have no preconditions:
                // they also run when a program links SDL2.
                let opened = unsafe { Library::open(Some(library), RTLD_NOW | RTLD_LOCAL) };
                let handle = opened.map_err(|error| SdlError::Library {
                    library: library.to_owned(),
                    reason: error.to_string(),
                })?;
                let lacks = |error: libloading::Error| SdlError::Function {
                    library: library.to_owned(),
                    reason: error.to_string(),
                };
                Ok(Functions {
                    $(
                        // SAFETY: the type is the one of the function's declaration in sdl2-sys
                        // (the constants below), and SDL changes no signature within its ABI 2.0.
                        // The address stays valid, because the handle lives as long as the table.
                        $name: *unsafe { handle.get(concat!(stringify!($name), "\0").as_bytes()) }
                            .map_err(lacks)?,
                    )*
                    _library: handle,
                })
            }
        }

        $(
            // Fails to compile where the type differs from the binding's.
            const _: unsafe extern "C" fn($($type),*) $(-> $result)? = sys::$name;

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: the address is the one of this function in SDL2, and the caller meets
                // the function's preconditions.
                unsafe { (functions_or_abort().$name)($($argument),*) }
            }
        )*
    };
}

// All SDL functions that the command uses. A missing one causes a linker error in framepath-cli
// (its build.rs).
forward! {
    fn SDL_CreateRenderer(window: *mut SDL_Window, index: c_int, flags: Uint32) -> *mut SDL_Renderer;
    fn SDL_CreateShapedWindow(
        title: *const c_char, x: c_uint, y: c_uint, w: c_uint, h: c_uint, flags: Uint32
    ) -> *mut SDL_Window;
    fn SDL_CreateTexture(
        renderer: *mut SDL_Renderer, format: Uint32, access: c_int, w: c_int, h: c_int
    ) -> *mut SDL_Texture;
    fn SDL_CreateWindow(
        title: *const c_char, x: c_int, y: c_int, w: c_int, h: c_int, flags: Uint32
    ) -> *mut SDL_Window;
    fn SDL_DestroyRenderer(renderer: *mut SDL_Renderer);
    fn SDL_DestroyTexture(texture: *mut SDL_Texture);
    fn SDL_DestroyWindow(window: *mut SDL_Window);
    fn SDL_GetCurrentVideoDriver() -> *const c_char;
    fn SDL_GetDisplayUsableBounds(display: c_int, rect: *mut SDL_Rect) -> c_int;
    fn SDL_GetError() -> *const c_char;
    fn SDL_GetNumRenderDrivers() -> c_int;
    fn SDL_GetRenderDriverInfo(index: c_int, info: *mut SDL_RendererInfo) -> c_int;
    fn SDL_GetRendererOutputSize(renderer: *mut SDL_Renderer, w: *mut c_int, h: *mut c_int) -> c_int;
    fn SDL_GetVersion(version: *mut SDL_version);
    fn SDL_GetWindowFlags(window: *mut SDL_Window) -> Uint32;
    fn SDL_GetWindowPixelFormat(window: *mut SDL_Window) -> Uint32;
    fn SDL_GetWindowSize(window: *mut SDL_Window, w: *mut c_int, h: *mut c_int);
    fn SDL_GetWindowSurface(window: *mut SDL_Window) -> *mut SDL_Surface;
    fn SDL_GetWindowWMInfo(window: *mut SDL_Window, info: *mut SDL_SysWMinfo) -> SDL_bool;
    fn SDL_Init(flags: Uint32) -> c_int;
    fn SDL_InitSubSystem(flags: Uint32) -> c_int;
    fn SDL_LockSurface(surface: *mut SDL_Surface) -> c_int;
    fn SDL_LockTexture(
        texture: *mut SDL_Texture, rect: *const SDL_Rect, pixels: *mut *mut c_void, pitch: *mut c_int
    ) -> c_int;
    fn SDL_PollEvent(event: *mut SDL_Event) -> c_int;
    fn SDL_QueryTexture(
        texture: *mut SDL_Texture, format: *mut Uint32, access: *mut c_int, w: *mut c_int, h: *mut c_int
    ) -> c_int;
    fn SDL_Quit();
    fn SDL_QuitSubSystem(flags: Uint32);
    fn SDL_RenderClear(renderer: *mut SDL_Renderer) -> c_int;
    fn SDL_RenderCopy(
        renderer: *mut SDL_Renderer, texture: *mut SDL_Texture, from: *const SDL_Rect, to: *const SDL_Rect
    ) -> c_int;
    fn SDL_RenderPresent(renderer: *mut SDL_Renderer);
    fn SDL_SetHint(name: *const c_char, value: *const c_char) -> SDL_bool;
    fn SDL_SetWindowFullscreen(window: *mut SDL_Window, flags: Uint32) -> c_int;
    fn SDL_SetYUVConversionMode(mode: SDL_YUV_CONVERSION_MODE);
    fn SDL_UnlockSurface(surface: *mut SDL_Surface);
    fn SDL_UnlockTexture(texture: *mut SDL_Texture);
    fn SDL_UpdateWindowSurface(window: *mut SDL_Window) -> c_int;
    fn SDL_UpdateWindowSurfaceRects(window: *mut SDL_Window, rects: *const SDL_Rect, count: c_int) -> c_int;
    fn SDL_WaitEventTimeout(event: *mut SDL_Event, timeout: c_int) -> c_int;
    fn SDL_free(memory: *mut c_void);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_a_library_that_is_not_installed() {
        let error = Functions::open("libframepath-no-such.so.0").err().unwrap();
        let SdlError::Library { library, reason } = &error else { panic!("{error:?}") };
        assert_eq!(library, "libframepath-no-such.so.0");
        assert!(!reason.is_empty());
    }

    #[test]
    fn an_error_names_a_function_that_the_library_lacks() {
        let error = Functions::open("libc.so.6").err().unwrap();
        let SdlError::Function { library, reason } = &error else { panic!("{error:?}") };
        assert_eq!(library, "libc.so.6");
        assert!(reason.contains("SDL_CreateRenderer"), "{reason}");
    }

    #[test]
    fn the_functions_of_the_library_are_called() {
        assert_eq!(load(), Ok(()));
        assert!(version().unwrap().starts_with("2."));
    }
}
