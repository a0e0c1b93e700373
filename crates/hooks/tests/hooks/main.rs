//! The hook runtime on its own: order, aggregation, isolation, registration.

mod isolation;
mod onboarding;
mod order;
mod providing;
mod registration;
mod support;
