//! Hook runtime: order, aggregation, isolation, registration.

mod isolation;
mod onboard_config;
mod order;
mod plugins_page;
mod provider_overrides;
mod registration;
mod support;
