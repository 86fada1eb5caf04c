/** Asks the server of leases. @module */
import type { Netns } from "../../ffi/netns/netns.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { observeQuery, observer, type ServerRehearsal } from "../../ffi/sys/observer.ts";
import { pollFor } from "../../ffi/sys/poll.ts";
import { receiveAvailable, sendAvailable } from "../../ffi/sys/stream_socket.ts";
import { POLLIN, POLLOUT, SOCK_NONBLOCK, SOCK_STREAM } from "../../ffi/sys/uapi.ts";
import { connectTo } from "../../ffi/sys/unix_socket.ts";
import type { Descriptor } from "../../ffi/sys/file.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import { parseJson } from "../../spec/jsonc.ts";
import { throwIfSignalled } from "../lib/protocol/signal.ts";
import { answerTimeoutMs, isServerBusy, MAX_BUSY_WAITS, noteSilence } from "../lib/protocol/silent_servers.ts";
import { newLineBuffer } from "./lines.ts";
import { dhcpAnswer, type DhcpQuestion, type DhcpServerAnswer, stateDirectoryOf } from "./protocol.ts";
import { describeRequest, rehearseRequest } from "./rehearse.ts";

/** Interval of checks for a blocked signal. */
const SIGNAL_POLL_MS = 50;
/** A server that is replaced is back within this time. */
const RECONNECT_MS = 5000;
const RECONNECT_POLL_MS = 20;
/** A request at which that many servers end is the reason. */
const MAX_SERVERS = 5;
/** For requests that the server answers at once. */
const ANSWER_TIMEOUT_MS = 2000;
/** While an ADD waits, the server is asked this often whether it works. */
const LIVENESS_INTERVAL_MS = 2000;
const LIVENESS_TIMEOUT_MS = 2000;

export class NoDhcpServerError extends CniError {}

class SilentDhcpServerError extends CniError {}

const noServerError = (path: string): CniError =>
  new NoDhcpServerError(Code.TryAgainLater, `no server of DHCP leases listens on "${path}"`, {
    details: 'start "cni serve" or "dhcp daemon"',
  });

/**
 * Sends a request and waits for the answer. If the server ends meanwhile, the next one gets the request.
 *
 * The server decides when an ADD gives up, as long as it works.
 *
 * @throws {CniError} the server's, or code 11 without a server or an answer, or if a blocked signal asks to end
 */
export function askDhcpServer(
  host: Netns,
  path: string,
  request: DhcpQuestion,
  timeoutMs: number = request.command === "add" ? LIVENESS_INTERVAL_MS : ANSWER_TIMEOUT_MS,
): DhcpServerAnswer {
  const ask = () => {
    const limitMs = answerTimeoutMs(host, path, timeoutMs);
    const livenessTimeoutMs = answerTimeoutMs(host, path, LIVENESS_TIMEOUT_MS);
    const onSilence = request.command === "add"
      ? () => requireLiveServer(path, livenessTimeoutMs)
      : failUnlessBusy(path);
    try {
      return exchange(path, request, limitMs, onSilence);
    } catch (error) {
      if (error instanceof SilentDhcpServerError) noteSilence(host, path);
      throw error;
    }
  };
  if (CHANGELESS.includes(request.command)) return observeQuery(path, ask);
  if (!observer) return ask();
  const rehearse = (rehearsal: ServerRehearsal) =>
    rehearseRequest(
      request,
      rehearsal,
      (question) => askDhcpServer(host, path, question),
    );
  return observer({ kind: "server", socketPath: path, sentence: describeRequest(request), rehearse }, ask);
}

/** A rehearsal sends these requests, since they change nothing. */
const CHANGELESS: readonly DhcpQuestion["command"][] = ["check", "stale", "status"];

/** @param onSilence is called each time that no answer has come for so long; throws to give up */
function exchange(path: string, request: DhcpQuestion, timeoutMs: number, onSilence: () => void): DhcpServerAnswer {
  let reconnectUntil = -Infinity;
  for (let servers = 0; servers < MAX_SERVERS;) {
    using connection = connect(path);
    const line = connection && exchangeLines(connection, JSON.stringify(request), timeoutMs, onSilence);
    if (line !== undefined) return parseAnswer(line);
    const now = performance.now();
    if (connection) {
      servers++;
      reconnectUntil = now + RECONNECT_MS;
    }
    if (now > reconnectUntil) throw noServerError(path);
    throwIfSignalled();
    Bun.sleepSync(RECONNECT_POLL_MS);
  }
  throw new CniError(Code.TryAgainLater, "the server of DHCP leases ends when it gets the request", {
    details: "its log says why",
  });
}

function failSilently(): never {
  throw new SilentDhcpServerError(Code.TryAgainLater, "the server of DHCP leases does not answer", {
    details: "it may hang; cni serve --status shows its process",
  });
}

function failUnlessBusy(path: string): () => void {
  let waits = 0;
  return () => {
    if (waits++ === MAX_BUSY_WAITS || !isServerBusy(stateDirectoryOf(path))) failSilently();
  };
}

function requireLiveServer(path: string, timeoutMs: number): void {
  try {
    exchange(path, { command: "status" }, timeoutMs, failUnlessBusy(path));
  } catch (error) {
    // It has ended, which the connection that waits tells too: the next server gets the request.
    if (!(error instanceof NoDhcpServerError)) throw error;
  }
}

/** A server that hangs does not take connections, and the queue for them ends. */
function connect(path: string): Descriptor | undefined {
  try {
    return connectTo(path, SOCK_STREAM | SOCK_NONBLOCK);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    if (error.code === "EAGAIN") failSilently();
    throw new CniError(Code.TryAgainLater, error.message, { cause: error });
  }
}

/** `undefined` if the server has closed the connection. */
function exchangeLines(
  connection: Descriptor,
  request: string,
  timeoutMs: number,
  onSilence: () => void,
): string | undefined {
  const received = newLineBuffer();
  let unsent = new TextEncoder().encode(`${request}\n`);
  let leftMs = timeoutMs;
  for (;;) {
    const sent = unsent.length > 0 ? sendAvailable(connection.fd, unsent) : 0;
    if (sent === undefined) return undefined;
    unsent = unsent.subarray(sent);
    throwIfSignalled();
    // A server that hangs has got the request, for when it goes on.
    if (leftMs <= 0) {
      onSilence();
      leftMs = timeoutMs;
    }
    const awaited = unsent.length > 0 ? POLLIN | POLLOUT : POLLIN;
    if (!pollFor(connection.fd, awaited, SIGNAL_POLL_MS)) {
      leftMs -= SIGNAL_POLL_MS;
      continue;
    }
    const piece = receiveAvailable(connection.fd);
    if (piece?.length === 0) return undefined;
    const line = piece && received.add(piece);
    if (line !== undefined) return line;
  }
}

function parseAnswer(line: string): DhcpServerAnswer {
  const answer = parseLine(line);
  if (!answer.error) return answer;
  const { code, message, details } = answer.error;
  throw new CniError(code as Code, message, details ? { details } : {});
}

function parseLine(line: string): DhcpServerAnswer {
  try {
    return dhcpAnswer.parse(parseJson(line, "answer"));
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof ConfigError)) throw error;
    throw new CniError(Code.DecodeFailure, `Cannot read the answer of the server of DHCP leases: ${error.message}`);
  }
}
