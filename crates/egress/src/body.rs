//! Bodies of HTTP/1 messages: read by their length, written anew.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};

use crate::{head::Length, screen::Screen};

/// Most bytes that are passed on at once.
const PIECE: usize = 32 * 1024;
/// Most digits of the length of a chunk.
const MAX_CHUNK_DIGITS: usize = 16;
/// Most bytes of the fields behind the last chunk, which are not passed on.
const MAX_TRAILER: usize = 8 * 1024;

/// Passes a body on, in chunks again where it came in chunks and `chunks` says so, through a screen where there is one.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] where it is not what its length says, [`io::ErrorKind::UnexpectedEof`] where it ends
/// before, [`io::ErrorKind::WriteZero`] where writing failed, [`Echo`](crate::screen::Echo) where the screen found
/// something, and whatever reading says.
pub(crate) async fn pass(
    from: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    length: Length,
    chunks: bool,
    screen: Option<Screen>,
) -> io::Result<()> {
    let chunks = chunks && length == Length::Chunked;
    let mut passage = Passage { to, chunks, screen };
    match length {
        Length::None => {}
        Length::Exactly(bytes) => passage.exactly(from, bytes).await?,
        Length::Chunked => passage.chunked(from).await?,
        Length::ToTheEnd => loop {
            let waiting = from.fill_buf().await?;
            if waiting.is_empty() {
                break;
            }
            let bytes = waiting.len();
            passage.piece(waiting).await?;
            from.consume(bytes);
            flush_if_idle(from, passage.to).await?;
        },
    }
    passage.end().await
}

/// The way of one body.
struct Passage<'a, W> {
    to: &'a mut W,
    /// Whether it goes on in chunks.
    chunks: bool,
    screen: Option<Screen>,
}

impl<W: AsyncWrite + Unpin> Passage<'_, W> {
    async fn exactly(&mut self, from: &mut (impl AsyncBufRead + Unpin), mut left: u64) -> io::Result<()> {
        while left > 0 {
            let waiting = from.fill_buf().await?;
            if waiting.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
            let piece = &waiting[..waiting.len().min(most)];
            self.piece(piece).await?;
            let bytes = piece.len();
            from.consume(bytes);
            left -= bytes as u64;
            flush_if_idle(from, self.to).await?;
        }
        Ok(())
    }

    async fn chunked(&mut self, from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<()> {
        loop {
            let line = read_line(from, MAX_CHUNK_DIGITS).await?;
            // Extensions are read by nobody, and by some for something else.
            let digits = !line.is_empty() && line.iter().all(u8::is_ascii_hexdigit);
            let text = std::str::from_utf8(&line).ok().filter(|_| digits);
            let bytes = text
                .and_then(|text| u64::from_str_radix(text, 16).ok())
                .ok_or(io::ErrorKind::InvalidData)?;
            if bytes == 0 {
                break;
            }
            self.exactly(from, bytes).await?;
            if !read_line(from, 0).await?.is_empty() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let mut room = MAX_TRAILER;
        loop {
            let line = read_line(from, room).await?;
            room -= line.len();
            if line.is_empty() {
                return Ok(());
            }
        }
    }

    /// Some bytes of the body.
    async fn piece(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.screen {
            Some(screen) => {
                let seen = screen.push(bytes)?;
                self.write(&seen).await
            }
            None => self.write(bytes).await,
        }
    }

    /// All of it was there.
    async fn end(mut self) -> io::Result<()> {
        if let Some(screen) = self.screen.take() {
            let rest = screen.finish()?;
            self.write(&rest).await?;
        }
        if self.chunks {
            write(self.to, b"0\r\n\r\n").await?;
        }
        self.to.flush().await.map_err(as_write)
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if !self.chunks {
            return write(self.to, bytes).await;
        }
        write(self.to, format!("{:x}\r\n", bytes.len()).as_bytes()).await?;
        write(self.to, bytes).await?;
        write(self.to, b"\r\n").await
    }
}

/// A line that ends in CR LF, without that, of at most `most` bytes.
async fn read_line(from: &mut (impl AsyncBufRead + Unpin), most: usize) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        let waiting = from.fill_buf().await?;
        let &byte = waiting.first().ok_or(io::ErrorKind::UnexpectedEof)?;
        from.consume(1);
        match (line.last(), byte) {
            (Some(b'\r'), b'\n') => {
                line.pop();
                return Ok(line);
            }
            (Some(b'\r'), _) | (_, b'\n') => return Err(io::ErrorKind::InvalidData.into()),
            _ if line.len() > most => return Err(io::ErrorKind::InvalidData.into()),
            _ => line.push(byte),
        }
    }
}

async fn write(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await.map_err(as_write)
}

/// What is there goes out before anybody waits for more.
async fn flush_if_idle(
    from: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let waiting = tokio::select! {
        biased;
        waiting = from.fill_buf() => waiting.is_ok(),
        () = std::future::ready(()) => false,
    };
    if waiting {
        Ok(())
    } else {
        to.flush().await.map_err(as_write)
    }
}

/// Marks a failure as one of the side that is written to.
fn as_write(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::QuotaExceeded => error,
        _ => io::Error::new(io::ErrorKind::WriteZero, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn passed(mut body: &[u8], length: Length, chunks: bool) -> io::Result<(Vec<u8>, Vec<u8>)> {
        let mut written = Vec::new();
        pass(&mut body, &mut written, length, chunks, None).await?;
        Ok((written, body.to_vec()))
    }

    #[tokio::test]
    async fn a_body_is_passed_on_to_its_end_and_not_further() {
        let chunked = b"3\r\nabc\r\n02\r\nde\r\n0\r\nX: y\r\n\r\nNEXT";
        let again = passed(chunked, Length::Chunked, true).await.unwrap();
        assert_eq!(
            again,
            (b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n".to_vec(), b"NEXT".to_vec())
        );
        let plain = passed(chunked, Length::Chunked, false).await.unwrap();
        assert_eq!(plain, (b"abcde".to_vec(), b"NEXT".to_vec()));
        let exact = passed(b"abcNEXT", Length::Exactly(3), true).await.unwrap();
        assert_eq!(exact, (b"abc".to_vec(), b"NEXT".to_vec()));
        let all = passed(b"abc", Length::ToTheEnd, false).await.unwrap();
        assert_eq!(all, (b"abc".to_vec(), Vec::new()));
        let none = passed(b"NEXT", Length::None, false).await.unwrap();
        assert_eq!(none, (Vec::new(), b"NEXT".to_vec()));
    }

    #[tokio::test]
    async fn chunks_that_two_readers_could_read_differently_are_refused() {
        for bad in [
            &b"3;x=y\r\nabc\r\n0\r\n\r\n"[..],
            b"3\nabc\r\n0\r\n\r\n",
            b"+3\r\nabc\r\n0\r\n\r\n",
            b"0x3\r\nabc\r\n0\r\n\r\n",
            b" 3\r\nabc\r\n0\r\n\r\n",
            b"3 \r\nabc\r\n0\r\n\r\n",
            b"\r\nabc\r\n0\r\n\r\n",
            b"3\r\nabcd\r\n0\r\n\r\n",
            b"3\r\nabc\n0\r\n\r\n",
            b"3\r\nabc\r\n0\r\n\n",
            b"10000000000000003\r\nabc\r\n0\r\n\r\n",
            b"3\r\r\nabc\r\n0\r\n\r\n",
        ] {
            let error = passed(bad, Length::Chunked, true).await.unwrap_err();
            let text = String::from_utf8_lossy(bad);
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{text:?}");
        }
        for short in [&b"3\r\nab"[..], b"3\r\nabc\r\n", b"3\r\nabc\r\n0\r\n", b""] {
            let error = passed(short, Length::Chunked, true).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
        let short = passed(b"ab", Length::Exactly(3), true).await.unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
    }
}
