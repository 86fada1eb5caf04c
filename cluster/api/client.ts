/** Requests to the API server, and the limits that they have. @module */
import { excerpt } from "../../spec/jsonc.ts";
import { Account, type ApiAccess, type Credentials } from "./account.ts";
import { ApiProblem, LostConnection, Silence } from "./problem.ts";

export interface RequestLimits {
  /** The time to the first line of the answer. */
  readonly answerMs: number;
  /** The time between two pieces of it. The peer of a half-open connection is silent for ever. */
  readonly silenceMs: number;
  /** The time to its end, however slowly it comes; as long as it takes unless told. */
  readonly wholeMs?: number;
}

interface Change {
  readonly method: string;
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
}

// An answer that refuses is a Status, or the page of a proxy.
const MAX_REFUSAL_BYTES = 64 * 1024;
const MAX_RETRY_AFTER_MS = 300_000;

// Such as DEPTH_ZERO_SELF_SIGNED_CERT, ERR_TLS_CERT_ALTNAME_INVALID, UNABLE_TO_VERIFY_LEAF_SIGNATURE.
const CERTIFICATE_ERROR = /CERT|VERIFY/;

export class ApiClient {
  readonly server: string;
  readonly #account: Account;

  constructor({ server, accountDirectory }: ApiAccess) {
    this.server = server;
    this.#account = new Account(accountDirectory);
  }

  /**
   * Sends one GET. The pieces of the answer must be read; each is empty when the next one comes.
   *
   * @throws {ApiProblem} if the answer is another than 200, later if it ends early
   */
  open(path: string, signal: AbortSignal, limits: RequestLimits): Promise<AsyncIterable<Uint8Array>> {
    return this.#open(path, signal, limits);
  }

  /** Changes what the patch names; of lists with a key, single items. @throws {ApiProblem} */
  async patch(path: string, patch: object, signal: AbortSignal, limits: RequestLimits): Promise<void> {
    const change = {
      method: "PATCH",
      body: JSON.stringify(patch),
      headers: { "Content-Type": "application/strategic-merge-patch+json" },
    };
    await textOf(await this.#open(path, signal, limits, change), Infinity);
  }

  async #open(
    path: string,
    signal: AbortSignal,
    limits: RequestLimits,
    change?: Change,
  ): Promise<AsyncIterable<Uint8Array>> {
    const credentials = this.#account.credentials();
    const guard = new Guard(signal, this.server, limits.wholeMs);
    try {
      guard.expectWithin(limits.answerMs);
      const response = await this.#fetch(path, credentials, guard.signal, change);
      if (response.status === 200) return this.#read(response, guard, limits.silenceMs);
      throw await this.#refusal(response);
    } catch (error) {
      guard.end();
      throw this.#asProblem(error);
    }
  }

  async getText(path: string, signal: AbortSignal, limits: RequestLimits): Promise<string> {
    return await textOf(await this.open(path, signal, limits), Infinity);
  }

  #fetch(path: string, { token, ca }: Credentials, signal: AbortSignal, change?: Change): Promise<Response> {
    return fetch(`${this.server}${path}`, {
      ...change,
      headers: {
        ...change?.headers,
        "Accept": "application/json",
        // Compressed lists cost the server a third more of its processors, which are scarcer than the network.
        "Accept-Encoding": "identity",
        "Authorization": `Bearer ${token}`,
      },
      redirect: "error",
      signal,
      // The runtime has a variable that would trust anybody with the token.
      tls: { ca, rejectUnauthorized: true },
    });
  }

  async *#read(response: Response, guard: Guard, silenceMs: number): AsyncGenerator<Uint8Array> {
    try {
      guard.expectWithin(silenceMs);
      for await (const piece of response.body ?? []) {
        yield piece;
        // Frees it now: the runtime would keep all 50 MB of a large list for a while.
        piece.buffer.transfer(0);
        guard.hear();
      }
    } catch (error) {
      throw this.#asProblem(error);
    } finally {
      guard.end();
    }
  }

  async #refusal({ status, headers, body }: Response): Promise<ApiProblem> {
    if (status === 401) this.#account.forget();
    const text = await textOf(body ?? [], MAX_REFUSAL_BYTES);
    const seconds = Number(headers.get("Retry-After") ?? NaN);
    return new ApiProblem(`${this.server} answers ${status}`, {
      status,
      details: statusMessage(text) ?? excerpt(text),
      retryAfterMs: seconds >= 0 ? Math.min(seconds * 1000, MAX_RETRY_AFTER_MS) : undefined,
    });
  }

  #asProblem(error: unknown): ApiProblem {
    if (error instanceof ApiProblem) return error;
    const { code, message } = error as { readonly code?: unknown; readonly message: string };
    if (code === "UnexpectedRedirect") return new ApiProblem(`${this.server} redirects, and the token is for it alone`);
    if (typeof code === "string" && CERTIFICATE_ERROR.test(code)) {
      const details = `${code}: its certificate must be of an authority in ca.crt, for this address, and in force`;
      return new ApiProblem(`${this.server} cannot be trusted`, { details });
    }
    return new LostConnection(`${this.server} does not answer`, { details: typeof code === "string" ? code : message });
  }
}

/** Ends a request that is silent for too long, or that nobody wants any more. */
class Guard {
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal;
  readonly #server: string;
  readonly #wholeTimer: Timer | undefined;
  #timer: Timer | undefined;
  #heardAt = 0;

  constructor(outer: AbortSignal, server: string, wholeMs: number | undefined) {
    this.#outer = outer;
    this.#server = server;
    if (wholeMs !== undefined) {
      const slow = new LostConnection(`${server} is slow`, {
        details: `its answer has no end after ${wholeMs / 1000} s`,
      });
      this.#wholeTimer = setTimeout(() => this.#controller.abort(slow), wholeMs);
    }
    outer.addEventListener("abort", this.#abort);
    if (outer.aborted) this.#abort();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Call {@linkcode hear} for each piece of what is expected. */
  expectWithin(ms: number): void {
    clearTimeout(this.#timer);
    this.hear();
    this.#timer = setTimeout(() => this.#look(ms), ms);
  }

  /** A timer for each piece would cost more than to read it. */
  hear(): void {
    this.#heardAt = performance.now();
  }

  end(): void {
    clearTimeout(this.#timer);
    clearTimeout(this.#wholeTimer);
    this.#outer.removeEventListener("abort", this.#abort);
  }

  #look(ms: number): void {
    const restMs = this.#heardAt + ms - performance.now();
    if (restMs > 0) this.#timer = setTimeout(() => this.#look(ms), restMs);
    else {
      const details = `it has said nothing for ${ms / 1000} s`;
      this.#controller.abort(new Silence(`${this.#server} is silent`, { details }));
    }
  }

  readonly #abort = (): void => this.#controller.abort(this.#outer.reason);
}

async function textOf(pieces: AsyncIterable<Uint8Array> | Iterable<Uint8Array>, maxBytes: number): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const piece of pieces) {
    text += decoder.decode(piece, { stream: true });
    if (text.length > maxBytes) break;
  }
  return text;
}

/** @see Kubernetes API meta/v1 Status */
function statusMessage(text: string): string | undefined {
  try {
    const { kind, message } = JSON.parse(text) as { readonly kind?: unknown; readonly message?: unknown };
    return kind === "Status" && typeof message === "string" ? message : undefined;
  } catch {
    return undefined;
  }
}
