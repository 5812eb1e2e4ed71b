//! RabbitMQ itself, held to what every queue has to pass and to what only a broker can show.
//!
//! Each test has a virtual host of its own, on the broker that `MAYFLY_TEST_AMQP` names, so that they run side by side.
//! Tests of faults that hit a whole broker start one of their own from the machine's packages.

mod broker;
mod contract;
mod faults;
mod permissions;
mod speed;
