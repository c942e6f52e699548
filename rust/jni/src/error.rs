//! How failures reach Java: one error type, one policy, one exception factory.

use std::any::Any;
use std::fmt;

use arrow::error::ArrowError;
use jni::errors::ErrorPolicy;
use jni::objects::{JThrowable, JValue};
use jni::{Env, jni_sig, jni_str};
use lakemark_table::{ErrorKind, damaged, kind_of_parquet};
use parquet::errors::ParquetError;

/// A failure with its kind and a message for the user.
#[derive(Debug)]
pub(crate) struct NativeError {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    /// A Java exception is pending already and says it better.
    pending: bool,
}

/// The result of everything in this crate.
pub(crate) type Result<T, E = NativeError> = std::result::Result<T, E>;

impl NativeError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), pending: false }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// What a panic becomes.
    pub(crate) fn panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Self::internal(format!("native panic: {text}; this is a defect of Lakemark, please report it"))
    }

    /// The error as a C stream can carry it. Java finds the kind again by the marker.
    pub(crate) fn into_arrow(self) -> ArrowError {
        ArrowError::ExternalError(Box::new(TaggedError(self)))
    }
}

impl fmt::Display for NativeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for NativeError {}

#[derive(Debug)]
struct TaggedError(NativeError);

impl fmt::Display for TaggedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[lakemark:{}] {}", self.0.kind, self.0.message)
    }
}

impl std::error::Error for TaggedError {}

impl From<lakemark_table::Error> for NativeError {
    fn from(error: lakemark_table::Error) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

impl From<object_store::Error> for NativeError {
    fn from(error: object_store::Error) -> Self {
        lakemark_table::Error::from(error).into()
    }
}

impl From<jni::errors::Error> for NativeError {
    fn from(error: jni::errors::Error) -> Self {
        let pending = matches!(error, jni::errors::Error::JavaException);
        Self { kind: ErrorKind::Internal, message: format!("JNI: {error}"), pending }
    }
}

impl From<serde_json::Error> for NativeError {
    fn from(error: serde_json::Error) -> Self {
        Self::internal(format!("the JSON between Java and Rust is not what was agreed: {error}"))
    }
}

impl From<ArrowError> for NativeError {
    fn from(error: ArrowError) -> Self {
        Self::internal(format!("Arrow: {error}"))
    }
}

/// What a failure to read `path` becomes: damage is distinguished from absence and from input and output.
pub(crate) fn reading(path: &str, error: &ParquetError) -> NativeError {
    let kind = kind_of_parquet(error);
    if kind == ErrorKind::NotFound {
        let message = format!(
            "{path} is not there: it was removed after the query was planned, so that the query has to be run again, or it is on a disk \
             that this executor does not see; let data and store be in folders that all of them share"
        );
        return NativeError::new(kind, message);
    }
    match kind {
        ErrorKind::Corrupt => damaged(path, error).into(),
        ErrorKind::Conflict => {
            NativeError::new(kind, format!("{path} changed after the query was planned; run the query again: {error}"))
        }
        _ => NativeError::new(kind, format!("cannot read {path}: {error}")),
    }
}

/// Turns every error and panic of a call into a `LakemarkException`.
pub(crate) struct Throw;

fn throw(env: &mut Env<'_>, error: &NativeError) -> jni::errors::Result<()> {
    if error.pending || env.exception_check() {
        return Ok(());
    }
    let kind = env.new_string(error.kind.name())?;
    let message = env.new_string(&error.message)?;
    let exception = env
        .call_static_method(
            jni_str!("io/lakemark/spark/LakemarkException"),
            jni_str!("of"),
            jni_sig!("(Ljava/lang/String;Ljava/lang/String;)Lio/lakemark/spark/LakemarkException;"),
            &[JValue::Object(&kind), JValue::Object(&message)],
        )?
        .l()?;
    let exception = env.cast_local::<JThrowable<'_>>(exception)?;
    // `throw` reports the exception that it has just raised, as it should.
    match env.throw(&exception) {
        Ok(()) | Err(jni::errors::Error::JavaException) => Ok(()),
        Err(other) => Err(other),
    }
}

impl<T: Default> ErrorPolicy<T, NativeError> for Throw {
    type Captures<'local: 'method, 'method> = ();

    fn on_error<'local: 'method, 'method>(
        env: &mut Env<'local>,
        _captures: &mut (),
        error: NativeError,
    ) -> jni::errors::Result<T> {
        throw(env, &error)?;
        Ok(T::default())
    }

    fn on_panic<'local: 'method, 'method>(
        env: &mut Env<'local>,
        _captures: &mut (),
        payload: Box<dyn Any + Send + 'static>,
    ) -> jni::errors::Result<T> {
        throw(env, &NativeError::panic(payload.as_ref()))?;
        Ok(T::default())
    }
}
