import { S3ServiceException } from "@aws-sdk/client-s3";

/** The HTTP status of an S3 refusal, undefined for any other error. */
export function statusOf(error: unknown): number | undefined {
  return error instanceof S3ServiceException ? error.$metadata.httpStatusCode : undefined;
}

/** True when S3 says that the object, the upload or the bucket is not there. */
export function missing(error: unknown): boolean {
  return statusOf(error) === 404;
}

/** Answers "not there" with `instead`; any other error goes on. */
export function ifMissing<T>(instead: T) {
  return (error: unknown): T => {
    if (!missing(error)) throw error;
    return instead;
  };
}
