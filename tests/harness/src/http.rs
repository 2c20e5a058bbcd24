//! Just enough HTTP to ask a local process whether it is well.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// The status code and body of a GET.
pub fn http_get(address: &str, path: &str) -> io::Result<(u16, String)> {
    http_request(address, "GET", path, "")
}

/// The status code and body that a request is answered with.
pub fn http_request(address: &str, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    // A process on a busy machine may answer late.
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}", body.len());
    write!(stream, "{head}\r\n\r\n{body}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "not an HTTP answer");
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(invalid)?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or_else(invalid)?;
    Ok((status, body.to_owned()))
}
