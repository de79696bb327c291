//! Bounds the bytes of all answers that clients have not taken yet.
//!
//! An answer stays in memory until its client has read it, so clients that do not read could fill the memory. A read is
//! refused if its answer does not fit. What has an effect is never refused afterwards: it is refused before it begins
//! ([`check_room`]), or its answer is counted as far as there is room. Streams have small buffers of their own.

use super::byte_budget::{ByteBudget, FREE_BYTES, Reservation};
use super::problem::Problem;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Room that must be left before jobs are claimed or a group is read.
const ROOM_MIN: usize = 4 << 20;

/// Reserves the bytes of each large answer until its client has taken it.
pub(super) async fn bound(State(budget): State<ByteBudget>, request: Request, next: Next) -> Response {
    let is_read = request.method().is_safe();
    let response = next.run(request).await;
    let Some(bytes) = response.body().size_hint().exact() else { return response };
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if bytes <= FREE_BYTES {
        return response;
    }
    let mut reservation = budget.start();
    if !reservation.grow(bytes) {
        if is_read {
            return no_room().into_response();
        }
        reservation.grow_as_far_as_possible(bytes);
    }
    response.map(|body| Body::new(Reserved { body, reservation: Some(reservation) }))
}

/// Refuses a request whose large answer would have no room, before it has an effect.
pub(super) fn check_room(budget: &ByteBudget) -> Result<(), Problem> {
    if budget.available() < ROOM_MIN { Err(no_room()) } else { Ok(()) }
}

fn no_room() -> Problem {
    Problem::busy(
        "clients that do not read their answers fill the server's memory for answers; try again later, or ask for less \
         at once with `limit`",
    )
}

/// The body of a large answer. The reservation moves to its buffer, which lives until it is written.
struct Reserved {
    body: Body,
    reservation: Option<Reservation>,
}

impl HttpBody for Reserved {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else { return Poll::Ready(None) };
        Poll::Ready(Some(frame.map(|frame| {
            frame.map_data(|bytes| match self.reservation.take() {
                Some(reservation) => reservation.keep(bytes),
                None => bytes,
            })
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
