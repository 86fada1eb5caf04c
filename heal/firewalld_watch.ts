import { BUS_OBJECT, type DbusConnection, DbusError, findSystemBus } from "../ffi/dbus/connection.ts";
import { type DbusSignal, decodeSignal } from "../ffi/dbus/signal.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { FIREWALLD_BUS_NAME } from "../plugins/lib/ruleset/firewalld_bus.ts";

const MATCH_RULES = [
  `type='signal',sender='${FIREWALLD_BUS_NAME}',interface='${FIREWALLD_BUS_NAME}',member='Reloaded'`,
  `type='signal',sender='${BUS_OBJECT.destination}',member='NameOwnerChanged',arg0='${FIREWALLD_BUS_NAME}'`,
];
/** A bus that hangs must not keep rules from coming back. */
const BUS_TIMEOUT_MS = 1000;
/** When a bus that went is looked for again. Later, a change of the ruleset is the reason. */
const RETRIES_MS = [2000, 5000, 30_000];
const MIN_RETRY_MS = 2000;

/** Hears that firewalld has loaded its settings anew, which removes what D-Bus added. Without a bus, it hears nothing. */
export class FirewalldWatch implements Disposable {
  readonly #address: string | undefined;
  #bus: DbusConnection | undefined;
  /** Whose signals count: any program may send some. */
  #owner: unknown;
  #retries: number[] = [];
  #lastAttempt = -Infinity;
  #causes: string[] = [];

  constructor(address: string | undefined) {
    this.#address = address || undefined;
    this.connect();
    this.#causes = [];
  }

  get fds(): readonly number[] {
    return this.#bus ? [this.#bus.fd] : [];
  }

  /** When to call {@linkcode read} although nothing can be read. */
  get nextRetry(): number {
    return Math.min(Infinity, ...this.#retries);
  }

  /** Looks for a bus if there is none. Soon after the last attempt, a later {@linkcode read} does. */
  connect(): void {
    if (this.#bus) return;
    const now = performance.now();
    if (now < this.#lastAttempt + MIN_RETRY_MS) {
      if (this.#retries.length === 0) this.#retries = [this.#lastAttempt + MIN_RETRY_MS];
      return;
    }
    const isConnected = unlessBusFails(() => {
      this.#bus = findSystemBus(this.#address, BUS_TIMEOUT_MS);
      for (const rule of MATCH_RULES) this.#bus?.call({ ...BUS_OBJECT, member: "AddMatch", args: [rule] });
      this.#owner = this.#bus && findOwner(this.#bus);
    });
    if (!isConnected) this.#disconnect();
    if (this.#bus) this.#retries = [];
    // It may have reloaded in between.
    if (this.#owner !== undefined) this.#causes.push("a time without D-Bus");
    this.#lastAttempt = performance.now();
  }

  read(): string[] {
    const now = performance.now();
    if (this.nextRetry <= now) {
      this.#retries = this.#retries.filter((time) => time > now);
      this.connect();
    }
    const isConnected = unlessBusFails(() => {
      for (const bytes of this.#bus?.takeWaiting() ?? []) {
        const signal = decodeSignal(bytes);
        const cause = signal && this.#interpret(signal);
        if (cause !== undefined) this.#causes.push(cause);
      }
    });
    if (!isConnected) {
      this.#disconnect();
      this.#retries = RETRIES_MS.map((ms) => now + ms);
    }
    const causes = this.#causes;
    this.#causes = [];
    return causes;
  }

  [Symbol.dispose](): void {
    this.#disconnect();
  }

  #disconnect(): void {
    this.#bus?.[Symbol.dispose]();
    this.#bus = undefined;
    this.#owner = undefined;
  }

  #interpret({ sender, member, args }: DbusSignal): string | undefined {
    if (member === "Reloaded") return sender === this.#owner ? "a reload of firewalld" : undefined;
    if (member !== "NameOwnerChanged" || sender !== BUS_OBJECT.destination) return undefined;
    const [name, , owner] = args;
    if (name !== FIREWALLD_BUS_NAME) return undefined;
    this.#owner = owner || undefined;
    return owner ? "a start of firewalld" : undefined;
  }
}

function findOwner(bus: DbusConnection): unknown {
  try {
    return bus.call({ ...BUS_OBJECT, member: "GetNameOwner", args: [FIREWALLD_BUS_NAME] });
  } catch (error) {
    if (error instanceof DbusError) return undefined;
    throw error;
  }
}

/** False if the bus is gone, hangs or sends what cannot be read. */
function unlessBusFails(call: () => void): boolean {
  try {
    call();
    return true;
  } catch (error) {
    if (error instanceof SystemError || error instanceof DbusError || error instanceof RangeError) return false;
    throw error;
  }
}
