//! What does a client get whose request is not even HTTP?
//!
//! A path with raw bytes that are not UTF-8, a broken header, a head without end: such requests never reach a handler.
//! The HTTP library answers them with a bare status and an empty body. [`PoliteIo`] puts a problem in the place of that
//! answer as it passes, so that every refusal has a reason. Nothing else that the server sends is a refusal with an
//! empty body and without a content type.

use super::problem::{Kind, Problem};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that never refuses without a reason.
#[derive(Debug)]
pub(super) struct PoliteIo<T> {
    io: T,
    /// What is still to be sent in the place of a bare refusal.
    instead: Vec<u8>,
}

impl<T> PoliteIo<T> {
    pub fn new(io: T) -> Self {
        Self { io, instead: Vec::new() }
    }
}

impl<T: AsyncWrite + Unpin> PoliteIo<T> {
    fn poll_instead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.instead.is_empty() {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, &self.instead))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.instead.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for PoliteIo<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for PoliteIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_instead(cx))?;
        match reasoned(bytes) {
            None => Pin::new(&mut self.io).poll_write(cx, bytes),
            Some(instead) => {
                self.instead = instead;
                Poll::Ready(Ok(bytes.len()))
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A bare refusal has one part.
        if let [only] = parts {
            return self.poll_write(cx, only);
        }
        ready!(self.poll_instead(cx))?;
        Pin::new(&mut self.io).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// The same refusal with a reason, if this is a bare one.
fn reasoned(bytes: &[u8]) -> Option<Vec<u8>> {
    let status = bytes.strip_prefix(b"HTTP/1.1 ").or_else(|| bytes.strip_prefix(b"HTTP/1.0 "))?;
    if status.first() != Some(&b'4') || !bytes.ends_with(b"\r\n\r\n") {
        return None;
    }
    let head = std::str::from_utf8(bytes).ok()?.to_ascii_lowercase();
    if !head.contains("\r\ncontent-length: 0\r\n") || head.contains("\r\ncontent-type:") {
        return None;
    }
    let problem = match status.get(..3)? {
        b"400" => Problem::bad_request(
            "path",
            "or a header of this request is not valid HTTP/1.1; percent-encode everything in the path that is not plain ASCII",
        ),
        b"414" => Problem::field(Kind::UriTooLong, "path", "is too long; send a shorter one"),
        b"431" => {
            Problem::field(Kind::HeadersTooLarge, "headers", "are too large or too many; send fewer or shorter ones")
        }
        _ => return None,
    };
    Some(raw(problem))
}

/// A refusal in plain bytes, after which the connection ends.
pub(super) fn raw(problem: Problem) -> Vec<u8> {
    let (status, body) = problem.into_parts();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        super::problem::PROBLEM_JSON,
        body.len()
    );
    [head.as_bytes(), &body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bare_refusal_is_replaced() {
        let bare = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: x\r\n\r\n";
        let text = String::from_utf8(reasoned(bare).unwrap()).unwrap();
        assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\n"), "{text}");
        for other in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 404 Not Found\r\ncontent-type: application/problem+json\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}",
            b"data: HTTP/1.1 400\r\n\r\n",
            b"",
        ] {
            assert_eq!(reasoned(other), None);
        }
    }
}
