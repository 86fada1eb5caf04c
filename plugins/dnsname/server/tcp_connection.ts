/** A client's TCP connection: its questions, one after another, and their answers. @see RFC 7766 */
import type { Ip } from "../../../ffi/address.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import type { EventPoll } from "../../../ffi/sys/event_poll.ts";
import type { Descriptor } from "../../../ffi/sys/file.ts";
import { receiveBytes, sendBytes, sockaddrIp } from "../../../ffi/sys/inet_socket.ts";
import type { Asker } from "./shares.ts";
import { MAX_TCP_BYTES, read16, withLengthPrefix } from "./wire.ts";

const IDLE_MS = 10_000;
const MAX_QUESTION_BYTES = 4 * 1024;
/** A client that reads nothing may not fill the memory. */
const MAX_OUTPUT_BYTES = 4 * MAX_TCP_BYTES;

/** @param send takes the answer, now or later @returns false to hang up */
export type OnQuestion = (message: Uint8Array, sockaddr: Uint8Array, send: (message: Uint8Array) => void) => boolean;

export interface TcpConnectionOptions {
  readonly poll: EventPoll;
  readonly socket: Descriptor;
  readonly sockaddr: Uint8Array;
  readonly link: string;
  readonly isContainer: boolean;
  readonly onQuestion: OnQuestion;
  onClose(connection: TcpConnection): void;
}

export class TcpConnection implements Asker {
  readonly link: string;
  readonly source: Ip;
  readonly isContainer: boolean;
  readonly #options: TcpConnectionOptions;
  /** What came, without the questions that were taken. */
  #input: Uint8Array = new Uint8Array();
  /** What the client does not take yet. */
  #output: Uint8Array = new Uint8Array();
  #deadline = performance.now() + IDLE_MS;
  #isOpen = true;

  constructor(options: TcpConnectionOptions) {
    this.link = options.link;
    this.source = sockaddrIp(options.sockaddr);
    this.isContainer = options.isContainer;
    this.#options = options;
  }

  /** By `performance.now()`; then, the client has said nothing for long. */
  get deadline(): number {
    return this.#deadline;
  }

  /** Waits for questions, if there is memory for that. */
  start(): void {
    try {
      this.#waitForQuestions();
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.hangUp();
    }
  }

  hangUp(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    const { poll, socket, onClose } = this.#options;
    onClose(this);
    poll.forget(socket.fd);
    socket[Symbol.dispose]();
  }

  #waitForQuestions(): void {
    const { poll, socket } = this.#options;
    poll.onReadable(socket.fd, () => this.#read());
  }

  #read(): void {
    const buffer = new Uint8Array(MAX_QUESTION_BYTES);
    const count = receiveBytes(this.#options.socket.fd, buffer);
    if (count === undefined) return;
    if (count === 0) return this.hangUp();
    this.#deadline = performance.now() + IDLE_MS;
    this.#input = Buffer.concat([this.#input, buffer.subarray(0, count)]);
    this.#takeQuestions();
  }

  #takeQuestions(): void {
    const { sockaddr, onQuestion } = this.#options;
    while (this.#input.length >= 2 && this.#isOpen) {
      const length = read16(this.#input, 0);
      if (length > MAX_QUESTION_BYTES) return this.hangUp();
      if (this.#input.length < 2 + length) return;
      const question = this.#input.subarray(2, 2 + length);
      this.#input = this.#input.slice(2 + length);
      if (!onQuestion(question, sockaddr, (message) => this.#write(message))) return this.hangUp();
    }
  }

  #write(message: Uint8Array): void {
    if (!this.#isOpen) return;
    const isWaiting = this.#output.length > 0;
    this.#output = Buffer.concat([this.#output, withLengthPrefix(message)]);
    if (this.#output.length > MAX_OUTPUT_BYTES) return this.hangUp();
    if (!isWaiting && !this.#flush() && this.#isOpen) this.#waitForRoom();
  }

  #waitForRoom(): void {
    const { poll, socket: { fd } } = this.#options;
    poll.forget(fd);
    poll.onWritable(fd, () => {
      if (!this.#flush()) return;
      poll.forget(fd);
      this.#waitForQuestions();
    });
  }

  /** @returns whether the client has taken all */
  #flush(): boolean {
    const sent = sendBytes(this.#options.socket.fd, this.#output);
    if (sent === 0) {
      this.hangUp();
      return false;
    }
    this.#output = this.#output.subarray(sent ?? 0);
    return this.#output.length === 0;
  }
}
