//! How is a server loaded without the client being the limit?
//!
//! Client and server share the machine, so the client must be cheap: one prepared request sent over and over on a
//! keep-alive connection, and only as much of the answer parsed as is needed to know that it was a good one.

use anyhow::{Context, bail};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One keep-alive connection.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.context("cannot connect to the server to measure")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4_096) })
    }

    /// Sends a request and reads its answer to the end. An error if it is not a good answer.
    pub async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<()> {
        let status = self.status(request).await?;
        if !(200..300).contains(&status) {
            bail!("the server refused the event: {}", self.answer());
        }
        Ok(())
    }

    /// Sends a request, reads its answer to the end, and says its status.
    pub async fn status(&mut self, request: &[u8]) -> anyhow::Result<u16> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!("the server closed a connection in the middle of an answer");
            }
            if let Some((status, length)) = answer_length(&self.buffer)?
                && self.buffer.len() >= length
            {
                return Ok(status);
            }
        }
    }

    /// The last answer.
    pub fn answer(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.buffer)
    }
}

/// A POST of one event.
pub fn post(address: SocketAddr, body: &str) -> Vec<u8> {
    format!(
        "POST /v1/events HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The status and the length of the whole answer once its head has come.
fn answer_length(bytes: &[u8]) -> anyhow::Result<Option<(u16, usize)>> {
    let Some(head) = bytes.windows(4).position(|end| end == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..head]).context("the server's answer is not HTTP")?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
    let status = status.context("the server's answer is not HTTP")?;
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok());
    Ok(Some((status, head + 4 + length.context("the server's answer has no content-length")?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_where_its_head_says() {
        assert_eq!(answer_length(b"HTTP/1.1 201 Created\r\nContent-").unwrap(), None);
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(answer_length(answer).unwrap(), Some((201, answer.len())));
        assert!(answer_length(b"hello\r\n\r\n").is_err());
    }
}
