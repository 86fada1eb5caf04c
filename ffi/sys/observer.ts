/**
 * What a trace and a dry run see. Without an observer, a call pays one comparison per activity.
 *
 * An observer belongs to the process, as its system calls do: what an observer misses, a dry run would carry out.
 *
 * @module
 */

/** A part of a call, named in the specification's and the kernel's words. */
export type Activity =
  | PluginActivity
  | ProgramActivity
  | StepActivity
  | RequestsActivity
  | DbusActivity
  | ServerActivity
  | QueryActivity
  | { readonly kind: "undo" };

export interface PluginActivity {
  readonly kind: "plugin";
  readonly plugin: string;
  readonly command: string;
  readonly network: string;
  readonly containerId: string;
  readonly ifname: string;
  /** It removes what a failed ADD made. */
  readonly undoesAdd: boolean;
}

export interface ProgramActivity {
  readonly kind: "program";
  readonly path: string;
  readonly command: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stdin: string;
}

export interface StepActivity {
  readonly kind: "step";
  /** In the words of errors: `add link "cni0"`. */
  readonly purpose: string | (() => string);
}

export interface RequestsActivity {
  readonly kind: "requests";
  /** The netlink socket. An observer may give another one of the same kind. */
  socket: object;
  readonly netns: string;
  readonly requests: readonly ObservedRequest[];
  /** Each request asks for one object, which may be absent. */
  readonly hasOneReply: boolean;
  /** Takes answers, but no acknowledgements. An observer may put another function in its place. */
  onMessage(payload: AnswerPayload, index: number): void;
}

export interface AnswerPayload {
  readonly bytes: Uint8Array;
  readonly view: DataView;
  offset: number;
  end: number;
}

export interface DbusActivity {
  readonly kind: "dbus";
  readonly interface: string;
  readonly member: string;
  readonly args: readonly unknown[];
}

/** A message by which a server of this program changes what it does. */
export interface ServerActivity {
  readonly kind: "server";
  readonly socketPath: string;
  /** `read the names of "web:c1:eth0.json" again` */
  readonly sentence: string;
  /** Gets an answer of the same kind without the change. */
  rehearse(rehearsal: ServerRehearsal): unknown;
}

export interface ServerRehearsal {
  /** Names what the server would do: `release 10.1.0.2 of web`. */
  tell(sentence: string): void;
  /** Only the server knows the answer. @throws {Error} */
  abandon(): never;
}

/** A connection to another program that changes nothing there: all others are refused in a dry run. */
export interface QueryActivity {
  readonly kind: "query";
  readonly socketPath: string;
}

export interface ObservedRequest {
  readonly op: { readonly name: string; readonly type: number };
  readonly value: object;
  readonly flags?: number;
}

/** Runs the activity, unless it stands in its place. */
export type Observer = <T>(activity: Activity, run: () => T) => T;

/** Read it in place: a copy would miss a change. */
export let observer: Observer | undefined;

/** Has a dry run make this connection, too. @param ask changes nothing at the other end, or what it does is observed */
export function observeQuery<T>(socketPath: string, ask: () => T): T {
  return observer ? observer({ kind: "query", socketPath }, ask) : ask();
}

/** Has all activities go through `newObserver`, then through the one before, until the scope ends. */
export function observeActivities(newObserver: Observer): Disposable {
  const outer = observer;
  observer = outer ? (activity, run) => newObserver(activity, () => outer(activity, run)) : newObserver;
  return {
    [Symbol.dispose]() {
      observer = outer;
    },
  };
}

/** For requests of the dry run itself, which are not the command's. */
export function unobserved<T>(call: () => T): T {
  const outer = observer;
  observer = undefined;
  try {
    return call();
  } finally {
    observer = outer;
  }
}
