/** What went wrong between a client and the API server. Distinct problems have distinct messages. */
export class ApiProblem extends Error {
  /** What may differ each time that it occurs. */
  readonly details: string | undefined;
  /** The status of HTTP, or the code of a Status object. */
  readonly status: number | undefined;
  /** How long the server wants to be left alone. */
  readonly retryAfterMs: number | undefined;

  constructor(
    message: string,
    { details, status, retryAfterMs }: {
      readonly details?: string | undefined;
      readonly status?: number | undefined;
      readonly retryAfterMs?: number | undefined;
    } = {},
  ) {
    super(message);
    this.details = details;
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
}

/** The pod has no service account, or another process than a pod's asks. */
export class NoAccount extends ApiProblem {}

/** The connection broke, or was never made. */
export class LostConnection extends ApiProblem {}

/** The server did not close the connection, and says nothing. */
export class Silence extends LostConnection {}

/** A server lags behind the others: the next answer is the newest. */
export class OldList extends ApiProblem {}
