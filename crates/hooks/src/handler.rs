//! Functions as hook implementations: a parameter is an argument the function declares, and it gets no others.

use std::future::Future;

use futures::future::BoxFuture;

use crate::{Argument, Async, HookResult, Point, Sync};

/// A function that can implement an asynchronous hook point. `Params` are the arguments it declares.
pub trait AsyncHandler<P: Point<Mode = Async>, Params>: Send + std::marker::Sync + 'static {
    /// The names of the declared arguments.
    fn arguments() -> Vec<&'static str>;

    /// Calls the function.
    fn call(&self, args: &P::Args) -> BoxFuture<'static, HookResult<P::Output>>;
}

/// A function that can implement a synchronous hook point. `Params` are the arguments it declares.
pub trait SyncHandler<P: Point<Mode = Sync>, Params>: Send + std::marker::Sync + 'static {
    /// The names of the declared arguments.
    fn arguments() -> Vec<&'static str>;

    /// Calls the function.
    fn call(&self, args: &P::Args) -> HookResult<P::Output>;
}

macro_rules! handlers {
    ($($argument:ident),*) => {
        impl<P, F, Fut, $($argument),*> AsyncHandler<P, ($($argument,)*)> for F
        where
            P: Point<Mode = Async>,
            F: Fn($($argument),*) -> Fut + Send + std::marker::Sync + 'static,
            Fut: Future<Output = HookResult<P::Output>> + Send + 'static,
            $($argument: Argument<P>,)*
        {
            fn arguments() -> Vec<&'static str> {
                vec![$($argument::NAME),*]
            }

            fn call(&self, _args: &P::Args) -> BoxFuture<'static, HookResult<P::Output>> {
                Box::pin(self($($argument::take(_args)),*))
            }
        }

        impl<P, F, $($argument),*> SyncHandler<P, ($($argument,)*)> for F
        where
            P: Point<Mode = Sync>,
            F: Fn($($argument),*) -> HookResult<P::Output> + Send + std::marker::Sync + 'static,
            $($argument: Argument<P>,)*
        {
            fn arguments() -> Vec<&'static str> {
                vec![$($argument::NAME),*]
            }

            fn call(&self, _args: &P::Args) -> HookResult<P::Output> {
                self($($argument::take(_args)),*)
            }
        }
    };
}

handlers!();
handlers!(A);
handlers!(A, B);
handlers!(A, B, C);
handlers!(A, B, C, D);
handlers!(A, B, C, D, E);
