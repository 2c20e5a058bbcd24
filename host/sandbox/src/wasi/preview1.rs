//! WASI's first version, for commands: stdin has the question, stdout gets the answer, stderr gets log lines, and there is nothing else.

use super::{
    super::call::{CallError, CallState},
    CHUNK, INSTANT, MANY,
};
use crate::text::printable_line;
use wasmtime::{Caller, Extern, Linker, Module, Val};

/// The module that exports all of its functions.
pub(crate) const MODULE: &str = "wasi_snapshot_preview1";

/// The functions of WASI's first version. A command that imports any other is refused.
pub(crate) const FUNCTIONS: [&str; 46] = [
    "args_get",
    "args_sizes_get",
    "environ_get",
    "environ_sizes_get",
    "clock_res_get",
    "clock_time_get",
    "fd_advise",
    "fd_allocate",
    "fd_close",
    "fd_datasync",
    "fd_fdstat_get",
    "fd_fdstat_set_flags",
    "fd_fdstat_set_rights",
    "fd_filestat_get",
    "fd_filestat_set_size",
    "fd_filestat_set_times",
    "fd_pread",
    "fd_prestat_dir_name",
    "fd_prestat_get",
    "fd_pwrite",
    "fd_read",
    "fd_readdir",
    "fd_renumber",
    "fd_seek",
    "fd_sync",
    "fd_tell",
    "fd_write",
    "path_create_directory",
    "path_filestat_get",
    "path_filestat_set_times",
    "path_link",
    "path_open",
    "path_readlink",
    "path_remove_directory",
    "path_rename",
    "path_symlink",
    "path_unlink_file",
    "poll_oneoff",
    "proc_exit",
    "proc_raise",
    "random_get",
    "sched_yield",
    "sock_accept",
    "sock_recv",
    "sock_send",
    "sock_shutdown",
];

const STDIN: i32 = 0;
const STDOUT: i32 = 1;
const STDERR: i32 = 2;

/// The error codes of functions, with WASI's numbers.
#[derive(Clone, Copy)]
enum Errno {
    Badf = 8,
    Fault = 21,
    Inval = 28,
    Spipe = 70,
}

/// Why a function doesn't return zero.
enum Stop {
    /// The command gets an error code.
    Errno(Errno),
    /// The call ends.
    End(CallError),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// A command has exited.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it exited with code {0}")]
pub(crate) struct Exited(pub(crate) u32);

/// The memory of a command. Every access is checked.
struct Guest<'a> {
    memory: &'a mut [u8],
    state: &'a mut CallState,
}

impl Guest<'_> {
    fn at(&mut self, address: i32, length: usize) -> Result<&mut [u8], Errno> {
        let start = address.cast_unsigned() as usize;
        let end = start.checked_add(length).ok_or(Errno::Fault)?;
        self.memory.get_mut(start..end).ok_or(Errno::Fault)
    }

    fn put<const N: usize>(&mut self, address: i32, bytes: [u8; N]) -> Result<(), Errno> {
        self.at(address, N).map(|place| place.copy_from_slice(&bytes))
    }

    fn get<const N: usize>(&mut self, address: i32) -> Result<[u8; N], Errno> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.at(address, N)?);
        Ok(bytes)
    }

    /// Reads one entry of a function's list of buffers.
    fn buffer(&mut self, list: i32, index: u32) -> Result<(i32, usize), Errno> {
        let entry = list.wrapping_add((index * 8).cast_signed());
        let address = i32::from_le_bytes(self.get(entry)?);
        let length = u32::from_le_bytes(self.get(entry.wrapping_add(4))?);
        Ok((address, length as usize))
    }

    fn read(&mut self, fd: i32, list: i32, count: i32, done: i32) -> Result<(), Stop> {
        if fd != STDIN {
            return Err(Errno::Badf.into());
        }
        let mut total = 0;
        for index in 0..few(count)? {
            let (address, length) = self.buffer(list, index)?;
            let start = self.state.read;
            let length = length.min(self.state.stdin.len() - start).min(CHUNK - total);
            let bytes = self.state.stdin[start..start + length].to_vec();
            self.at(address, length)?.copy_from_slice(&bytes);
            self.state.read += length;
            total += length;
        }
        Ok(self.put(done, u32::try_from(total).map_err(|_| Errno::Inval)?.to_le_bytes())?)
    }

    fn write(&mut self, fd: i32, list: i32, count: i32, done: i32) -> Result<(), Stop> {
        if !matches!(fd, STDOUT | STDERR) {
            return Err(Errno::Badf.into());
        }
        let mut total = 0;
        for index in 0..few(count)? {
            let (address, length) = self.buffer(list, index)?;
            // The next call writes the rest, as with a pipe.
            let length = length.min(CHUNK - total);
            let bytes = self.at(address, length)?.to_vec();
            if fd == STDERR {
                self.state.keep_text(tracing::Level::WARN, &bytes);
            } else if self.state.stdout.len() + length > self.state.output() {
                return Err(Stop::End(CallError::Output(self.state.output())));
            } else {
                self.state.stdout.extend(bytes);
            }
            total += length;
        }
        Ok(self.put(done, u32::try_from(total).map_err(|_| Errno::Inval)?.to_le_bytes())?)
    }

    /// Reports all events at once.
    fn poll(&mut self, subscriptions: i32, events: i32, count: i32, done: i32) -> Result<(), Stop> {
        let count = few(count)?;
        if count == 0 {
            return Err(Errno::Inval.into());
        }
        for index in 0..count.cast_signed() {
            let subscription: [u8; 48] = self.get(subscriptions.wrapping_add(index * 48))?;
            let mut event = [0; 32];
            event[..8].copy_from_slice(&subscription[..8]);
            event[10] = subscription[8];
            self.put(events.wrapping_add(index * 32), event)?;
        }
        Ok(self.put(done, count.to_le_bytes())?)
    }

    /// Describes a descriptor: its type is unknown, and it can be read or written.
    fn descriptor(&mut self, fd: i32, to: i32) -> Result<(), Stop> {
        let rights: u64 = if standard(fd)? == STDIN { 1 << 1 } else { 1 << 6 };
        let mut stat = [0; 24];
        stat[8..16].copy_from_slice(&rights.to_le_bytes());
        Ok(self.put(to, stat)?)
    }
}

fn few(count: i32) -> Result<u32, Errno> {
    u32::try_from(count).ok().filter(|count| *count <= MANY).ok_or(Errno::Inval)
}

fn standard(fd: i32) -> Result<i32, Errno> {
    if matches!(fd, STDIN | STDOUT | STDERR) { Ok(fd) } else { Err(Errno::Badf) }
}

fn guest(caller: &mut Caller<'_, CallState>, run: impl FnOnce(&mut Guest<'_>) -> Result<(), Stop>) -> wasmtime::Result<i32> {
    caller.data_mut().count_host_call()?;
    let memory = caller.get_export("memory").and_then(Extern::into_memory);
    let memory = memory.ok_or_else(|| CallError::Instantiate("it exports no memory".to_owned()))?;
    let (memory, state) = memory.data_and_store_mut(caller);
    match run(&mut Guest { memory, state }) {
        Ok(()) => Ok(0),
        Err(Stop::Errno(errno)) => Ok(errno as i32),
        Err(Stop::End(error)) => Err(error.into()),
    }
}

/// Defines the imports of a command.
pub(crate) fn define(linker: &mut Linker<CallState>, module: &Module) -> wasmtime::Result<()> {
    start(linker)?;
    descriptors(linker)?;
    for import in module.imports().filter(|import| import.module() == MODULE) {
        let (name, Some(function)) = (import.name(), import.ty().func().cloned()) else { continue };
        if ANSWERED.contains(&name) {
            continue;
        }
        let called = printable_line(&format!("{MODULE}.{name}"));
        // There are no other descriptors. Runtimes look for some at startup, and continue without them.
        let looks_for_files = (name.starts_with("fd_") || name.starts_with("path_")) && function.results().len() == 1;
        linker.func_new(MODULE, name, function, move |mut caller, _, results| {
            caller.data_mut().count_host_call()?;
            match results {
                [result] if looks_for_files => *result = Val::I32(Errno::Badf as i32),
                _ => return Err(CallError::Called(called.clone()).into()),
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The functions with their own implementations.
const ANSWERED: [&str; 18] = [
    "args_get",
    "args_sizes_get",
    "environ_get",
    "environ_sizes_get",
    "clock_res_get",
    "clock_time_get",
    "random_get",
    "sched_yield",
    "poll_oneoff",
    "proc_exit",
    "fd_read",
    "fd_write",
    "fd_fdstat_get",
    "fd_fdstat_set_flags",
    "fd_filestat_get",
    "fd_close",
    "fd_seek",
    "fd_tell",
];

type Called<'a> = Caller<'a, CallState>;

/// The functions that a runtime calls at startup.
fn start(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    for name in ["args_sizes_get", "environ_sizes_get"] {
        linker.func_wrap(MODULE, name, |mut caller: Called<'_>, count: i32, size: i32| {
            guest(&mut caller, |guest| {
                guest.put(count, [0; 4])?;
                Ok(guest.put(size, [0; 4])?)
            })
        })?;
    }
    for name in ["args_get", "environ_get"] {
        linker.func_wrap(MODULE, name, |mut caller: Called<'_>, _: i32, _: i32| guest(&mut caller, |_| Ok(())))?;
    }
    linker.func_wrap(MODULE, "clock_res_get", |mut caller: Called<'_>, _: i32, to: i32| {
        guest(&mut caller, |guest| Ok(guest.put(to, 1_u64.to_le_bytes())?))
    })?;
    linker.func_wrap(MODULE, "clock_time_get", |mut caller: Called<'_>, clock: i32, _: i64, to: i32| {
        let now = if clock == 0 { 0 } else { INSTANT };
        guest(&mut caller, |guest| Ok(guest.put(to, now.to_le_bytes())?))
    })?;
    linker.func_wrap(MODULE, "random_get", |mut caller: Called<'_>, to: i32, length: i32| {
        guest(&mut caller, |guest| {
            let length = usize::try_from(length).ok().filter(|length| *length <= CHUNK).ok_or(Errno::Inval)?;
            guest.at(to, length)?.fill(0);
            Ok(())
        })
    })?;
    linker.func_wrap(MODULE, "sched_yield", |mut caller: Called<'_>| guest(&mut caller, |_| Ok(())))?;
    linker.func_wrap(MODULE, "poll_oneoff", |mut caller: Called<'_>, from: i32, to: i32, count: i32, done: i32| {
        guest(&mut caller, |guest| guest.poll(from, to, count, done))
    })?;
    linker
        .func_wrap(MODULE, "proc_exit", |_: Called<'_>, code: i32| -> wasmtime::Result<()> { Err(Exited(code.cast_unsigned()).into()) })?;
    Ok(())
}

/// The functions for the three descriptors.
fn descriptors(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.func_wrap(MODULE, "fd_read", |mut caller: Called<'_>, fd: i32, list: i32, count: i32, done: i32| {
        guest(&mut caller, |guest| guest.read(fd, list, count, done))
    })?;
    linker.func_wrap(MODULE, "fd_write", |mut caller: Called<'_>, fd: i32, list: i32, count: i32, done: i32| {
        guest(&mut caller, |guest| guest.write(fd, list, count, done))
    })?;
    linker.func_wrap(MODULE, "fd_fdstat_get", |mut caller: Called<'_>, fd: i32, to: i32| {
        guest(&mut caller, |guest| guest.descriptor(fd, to))
    })?;
    linker.func_wrap(MODULE, "fd_fdstat_set_flags", |mut caller: Called<'_>, fd: i32, _: i32| {
        guest(&mut caller, |_| Ok(standard(fd).map(drop)?))
    })?;
    linker.func_wrap(MODULE, "fd_filestat_get", |mut caller: Called<'_>, fd: i32, to: i32| {
        guest(&mut caller, |guest| {
            standard(fd)?;
            Ok(guest.put(to, [0; 64])?)
        })
    })?;
    linker.func_wrap(MODULE, "fd_close", |mut caller: Called<'_>, fd: i32| guest(&mut caller, |_| Ok(standard(fd).map(drop)?)))?;
    linker.func_wrap(MODULE, "fd_seek", |mut caller: Called<'_>, fd: i32, _: i64, _: i32, _: i32| {
        guest(&mut caller, |_| Err(standard(fd).err().unwrap_or(Errno::Spipe).into()))
    })?;
    linker.func_wrap(MODULE, "fd_tell", |mut caller: Called<'_>, fd: i32, _: i32| {
        guest(&mut caller, |_| Err(standard(fd).err().unwrap_or(Errno::Spipe).into()))
    })?;
    Ok(())
}
