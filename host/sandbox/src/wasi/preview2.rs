//! WASI 0.2 for components. Every interface may be imported, and a few functions return constants. A call of any other function ends the
//! plugin's call.

use super::{
    super::call::{CallError, CallState},
    CHUNK, INSTANT, MANY,
};
use crate::text::printable_line;
use wasmtime::{
    StoreContextMut,
    component::{
        Component, ComponentNamedList, ComponentType, Lift, Linker, LinkerInstance, Lower, Resource, ResourceType, WasmList,
        types::ComponentItem,
    },
};

/// A host resource in a plugin: a stream, or something to wait for. It is only a number.
struct Handle;

const OTHER: u32 = 0;
const STDOUT: u32 = 1;
const STDERR: u32 = 2;

#[derive(ComponentType, Lower)]
#[component(variant)]
#[allow(dead_code, unsafe_code)] // The first is never constructed; wasmtime's derive implements its own unsafe traits.
enum StreamError {
    #[component(name = "last-operation-failed")]
    LastOperationFailed(Resource<Handle>),
    #[component(name = "closed")]
    Closed,
}

#[derive(ComponentType, Lower)]
#[component(record)]
#[allow(unsafe_code)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

/// The name of an interface of WASI 0.2, without package and version; none for other interfaces.
pub(crate) fn interface(name: &str) -> Option<&str> {
    let (interface, version) = name.strip_prefix("wasi:")?.split_once('@')?;
    let patch = version.strip_prefix("0.2.")?;
    (!patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit())).then_some(interface)
}

/// Defines the WASI imports of a component.
pub(crate) fn define(linker: &mut Linker<CallState>, component: &Component) -> wasmtime::Result<()> {
    let engine = linker.engine().clone();
    for (name, import) in component.component_type().imports(&engine) {
        let (Some(interface), ComponentItem::ComponentInstance(instance)) = (interface(name), import.ty) else { continue };
        let mut stubs = linker.instance(name)?;
        for (item, export) in instance.exports(&engine) {
            match export.ty {
                ComponentItem::Resource(_) => {
                    stubs.resource(item, ResourceType::host::<Handle>(), |mut store, _| store.data_mut().count_host_call())?;
                }
                ComponentItem::ComponentFunc(_) if answer(&mut stubs, interface, item)? => {}
                ComponentItem::ComponentFunc(_) => {
                    let function = printable_line(&format!("{name}#{item}"));
                    stubs.func_new(item, move |_, _, _, _| Err(CallError::Called(function.clone()).into()))?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Defines a function that returns a constant. Returns false if the function has none.
fn answer(stubs: &mut LinkerInstance<'_, CallState>, interface: &str, function: &str) -> wasmtime::Result<bool> {
    let name = function;
    match (interface, function) {
        ("cli/environment", "get-environment") => say(stubs, name, |()| (Vec::<(String, String)>::new(),)),
        ("cli/environment", "get-arguments") => say(stubs, name, |()| (Vec::<String>::new(),)),
        ("cli/environment", "initial-cwd") => say(stubs, name, |()| (None::<String>,)),
        ("cli/stdin", "get-stdin") => say(stubs, name, |()| handle(OTHER)),
        ("cli/stdout", "get-stdout") => say(stubs, name, |()| handle(STDOUT)),
        ("cli/stderr", "get-stderr") => say(stubs, name, |()| handle(STDERR)),
        ("cli/terminal-stdin", "get-terminal-stdin")
        | ("cli/terminal-stdout", "get-terminal-stdout")
        | ("cli/terminal-stderr", "get-terminal-stderr") => say(stubs, name, |()| (None::<Resource<Handle>>,)),
        ("cli/exit", "exit") => exit(stubs, name, |(status,): (Result<(), ()>,)| status.is_err().into()),
        ("cli/exit", "exit-with-code") => exit(stubs, name, |(code,): (u8,)| code.into()),
        ("clocks/monotonic-clock", "now") => say(stubs, name, |()| (INSTANT,)),
        ("clocks/monotonic-clock", "resolution") => say(stubs, name, |()| (1_u64,)),
        ("clocks/monotonic-clock", "subscribe-instant" | "subscribe-duration") => say(stubs, name, |(_,): (u64,)| handle(OTHER)),
        ("clocks/wall-clock", "now") => say(stubs, name, |()| (Datetime { seconds: 0, nanoseconds: 0 },)),
        ("clocks/wall-clock", "resolution") => say(stubs, name, |()| (Datetime { seconds: 0, nanoseconds: 1 },)),
        ("filesystem/preopens", "get-directories") => say(stubs, name, |()| (Vec::<(Resource<Handle>, String)>::new(),)),
        ("random/random", "get-random-bytes") | ("random/insecure", "get-insecure-random-bytes") => zeros(stubs, name),
        ("random/random", "get-random-u64") | ("random/insecure", "get-insecure-random-u64") => say(stubs, name, |()| (0_u64,)),
        ("random/insecure-seed", "insecure-seed") => say(stubs, name, |()| ((0_u64, 0_u64),)),
        ("io/error", "[method]error.to-debug-string") => say(stubs, name, |(_,): This| (String::new(),)),
        ("io/poll", "[method]pollable.ready") => say(stubs, name, |(_,): This| (true,)),
        ("io/poll", "[method]pollable.block") => say(stubs, name, |(_,): This| ()),
        ("io/poll", "poll") => poll(stubs, name),
        ("io/streams", _) => return stream(stubs, name),
        _ => return Ok(false),
    }?;
    Ok(true)
}

/// Reads fail, and writes become log lines.
fn stream(stubs: &mut LinkerInstance<'_, CallState>, function: &str) -> wasmtime::Result<bool> {
    let name = function;
    match function {
        "[method]input-stream.read" | "[method]input-stream.blocking-read" => {
            say(stubs, name, |(_, _): Sized| (Err::<Vec<u8>, _>(StreamError::Closed),))
        }
        "[method]input-stream.skip" | "[method]input-stream.blocking-skip" => {
            say(stubs, name, |(_, _): Sized| (Err::<u64, _>(StreamError::Closed),))
        }
        "[method]input-stream.subscribe" | "[method]output-stream.subscribe" => say(stubs, name, |(_,): This| handle(OTHER)),
        "[method]output-stream.check-write" => say(stubs, name, |(_,): This| (Ok::<_, StreamError>(CHUNK as u64),)),
        "[method]output-stream.flush" | "[method]output-stream.blocking-flush" => {
            say(stubs, name, |(_,): This| (Ok::<(), StreamError>(()),))
        }
        "[method]output-stream.write" | "[method]output-stream.blocking-write-and-flush" => write(stubs, name),
        _ => return Ok(false),
    }?;
    Ok(true)
}

type This = (Resource<Handle>,);
type Sized = (Resource<Handle>, u64);

fn handle(which: u32) -> (Resource<Handle>,) {
    (Resource::new_own(which),)
}

/// Defines a function whose result is constant.
fn say<Params, Answer>(
    stubs: &mut LinkerInstance<'_, CallState>,
    name: &str,
    answer: impl Fn(Params) -> Answer + Send + Sync + 'static,
) -> wasmtime::Result<()>
where
    Params: ComponentNamedList + Lift + 'static,
    Answer: ComponentNamedList + Lower + 'static,
{
    stubs.func_wrap(name, move |mut store: StoreContextMut<'_, CallState>, params: Params| {
        store.data_mut().count_host_call()?;
        Ok(answer(params))
    })
}

fn exit<Params>(
    stubs: &mut LinkerInstance<'_, CallState>,
    name: &str,
    code: impl Fn(Params) -> u32 + Send + Sync + 'static,
) -> wasmtime::Result<()>
where
    Params: ComponentNamedList + Lift + 'static,
{
    stubs.func_wrap(name, move |mut store: StoreContextMut<'_, CallState>, params: Params| -> wasmtime::Result<()> {
        Err(store.data_mut().exited(code(params)).into())
    })
}

fn zeros(stubs: &mut LinkerInstance<'_, CallState>, name: &str) -> wasmtime::Result<()> {
    stubs.func_wrap(name, |mut store: StoreContextMut<'_, CallState>, (length,): (u64,)| {
        store.data_mut().count_host_call()?;
        match usize::try_from(length) {
            Ok(length) if length <= CHUNK => Ok((vec![0_u8; length],)),
            _ => Err(CallError::Trap(format!("it requested {length} random bytes at once; the limit is {CHUNK}")).into()),
        }
    })
}

fn poll(stubs: &mut LinkerInstance<'_, CallState>, name: &str) -> wasmtime::Result<()> {
    // Not lifted, because only their number is needed.
    stubs.func_wrap(name, |mut store: StoreContextMut<'_, CallState>, (pollables,): (WasmList<Resource<Handle>>,)| {
        store.data_mut().count_host_call()?;
        match u32::try_from(pollables.len()) {
            Ok(many) if (1..=MANY).contains(&many) => Ok(((0..many).collect::<Vec<u32>>(),)),
            _ => Err(CallError::Trap(format!("it waits for {} things at once", pollables.len())).into()),
        }
    })
}

fn write(stubs: &mut LinkerInstance<'_, CallState>, name: &str) -> wasmtime::Result<()> {
    stubs.func_wrap(name, |mut store: StoreContextMut<'_, CallState>, (stream, bytes): (Resource<Handle>, WasmList<u8>)| {
        store.data_mut().count_host_call()?;
        if bytes.len() > CHUNK {
            return Err(CallError::Trap(format!("it wrote {} bytes at once; the limit is {CHUNK}", bytes.len())).into());
        }
        let bytes = bytes.as_le_slice(&store).to_vec();
        let level = if stream.rep() == STDOUT { tracing::Level::DEBUG } else { tracing::Level::WARN };
        store.data_mut().keep_text(level, &bytes);
        Ok((Ok::<(), StreamError>(()),))
    })
}
