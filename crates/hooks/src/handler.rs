//! Functions as hook implementations. The parameters of a function declare the arguments it receives.

use std::future::Future;

use futures::future::BoxFuture;

use crate::{AsyncMode, HookArgument, HookPoint, HookResult, PluginGrant, SyncMode};

/// Function that implements an asynchronous hook point. `Params` are the arguments it declares.
pub trait AsyncHandler<P: HookPoint<Mode = AsyncMode>, Params>: Send + Sync + 'static {
    /// Names of the declared arguments.
    fn argument_names() -> Vec<&'static str>;

    /// Calls the function for the plugin that holds the grant.
    fn call(&self, args: &P::Args, grant: &PluginGrant) -> BoxFuture<'static, HookResult<P::Output>>;
}

/// Function that implements a synchronous hook point. `Params` are the arguments it declares.
pub trait SyncHandler<P: HookPoint<Mode = SyncMode>, Params>: Send + Sync + 'static {
    /// Names of the declared arguments.
    fn argument_names() -> Vec<&'static str>;

    /// Calls the function for the plugin that holds the grant.
    fn call(&self, args: &P::Args, grant: &PluginGrant) -> HookResult<P::Output>;
}

macro_rules! handlers {
    ($($argument:ident),*) => {
        impl<P, F, Fut, $($argument),*> AsyncHandler<P, ($($argument,)*)> for F
        where
            P: HookPoint<Mode = AsyncMode>,
            F: Fn($($argument),*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = HookResult<P::Output>> + Send + 'static,
            $($argument: HookArgument<P::Args>,)*
        {
            fn argument_names() -> Vec<&'static str> {
                vec![$($argument::ARGUMENT_NAME),*]
            }

            fn call(&self, _args: &P::Args, _grant: &PluginGrant) -> BoxFuture<'static, HookResult<P::Output>> {
                Box::pin(self($($argument::extract(_args, _grant)),*))
            }
        }

        impl<P, F, $($argument),*> SyncHandler<P, ($($argument,)*)> for F
        where
            P: HookPoint<Mode = SyncMode>,
            F: Fn($($argument),*) -> HookResult<P::Output> + Send + Sync + 'static,
            $($argument: HookArgument<P::Args>,)*
        {
            fn argument_names() -> Vec<&'static str> {
                vec![$($argument::ARGUMENT_NAME),*]
            }

            fn call(&self, _args: &P::Args, _grant: &PluginGrant) -> HookResult<P::Output> {
                self($($argument::extract(_args, _grant)),*)
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
handlers!(A, B, C, D, E, G);
