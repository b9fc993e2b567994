// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users that may use a service: the service checks the kernel's credentials, not the socket's
//! permissions.

use framepath_testkit::harness::{Tested, needs_root};
use framepath_testkit::service::ServiceProcess;
use framepath_testkit::{CommandOutput, finish};

/// Runs `top` as user nobody.
fn as_nobody(service: &ServiceProcess) -> CommandOutput {
    let socket = service.socket();
    finish(crate::as_nobody(&crate::binary(), &["top", "--once", "--socket", socket.to_str().unwrap()]))
}

pub fn a_service_accepts_only_its_own_user_and_allowed_users() -> Tested {
    needs_root()?;
    let service = ServiceProcess::start(&[]);
    as_nobody(&service).ended(1).prints("Permission denied");
    // A socket with permissions for every user, of a service for other users.
    let service = ServiceProcess::start(&["--allow-uid", "12345"]);
    as_nobody(&service).ended(1).prints("65534").prints("--allow-uid");
    assert_eq!(service.snapshot().totals.denied, 1);
    service.quiet();
    for allowed in [["--allow-uid", "65534"], ["--allow-gid", "65534"]] {
        let service = ServiceProcess::start(&allowed);
        as_nobody(&service).ended(0).shows("no streams");
    }
    Ok(())
}
