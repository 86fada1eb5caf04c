import { beforeEach, expect } from "bun:test";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns, openNetns } from "../ffi/netns/netns.ts";
import { useDirectory } from "../testing/directory.ts";
import { netnsTest } from "../testing/netns.ts";
import { CniError, Code } from "../spec/error.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import { type AnswerAsProgram, newHostContext, newRuntimeContext } from "../testing/plugin_call.ts";
import { findEntry } from "./cache.ts";
import { lockContainer } from "./lock.ts";
import { addNetworkList } from "./add.ts";
import type { RuntimeContext } from "./context.ts";
import { delNetworkList } from "./del.ts";

const root = useDirectory("cni-attach-");

const list = parseNetworkConfigList('{"cniVersion":"1.1.0","name":"web","plugins":[{"type":"a"}]}');
const who = { containerId: "c1", ifname: "eth0" };

/** A runtime over a plugin that does no more than `work`. */
let runtime: RuntimeContext;
let calls: string[];
let work: () => void;
let log: string[];
beforeEach(() => {
  calls = [];
  work = () => {};
  log = [];
  runtime = newRuntimeContext({ cacheDirectory: mkdtempSync(`${root}/`), programs, log });
});

const programs: AnswerAsProgram = (_, { command }) => {
  calls.push(command);
  work();
  return { exitCode: 0, stdout: command === "ADD" ? '{"cniVersion":"1.1.0"}' : "" };
};

/** The same runtime on a real host. */
function on(host: Netns, open: (path: string) => Netns = openNetns): RuntimeContext {
  return { ...runtime, hostContext: newHostContext({ host, openNetns: open, programs }) };
}

const gone = join(root, "gone");

/** The same runtime on a real host; `look` is called whenever a namespace was looked for where there is none any more. */
function watched(host: Netns, look: () => void): RuntimeContext {
  return on(host, (path) => {
    if (path === gone) look();
    return openNetns(path);
  });
}

netnsTest(
  "addNetworkList() leaves alone who took the place of an ended attachment meanwhile",
  ({ host, container }) => {
    const place = { ...who, netns: container.path };
    addNetworkList(runtime, list, { ...who, netns: gone });
    const onHost = watched(host, () => {
      delNetworkList(runtime, list, who);
      addNetworkList(runtime, list, place);
    });
    expect(() => addNetworkList(onHost, list, place)).toThrow("it is attached already");
    expect([calls, log]).toEqual([["ADD", "DEL", "ADD"], []]);
  },
);

netnsTest("addNetworkList() removes an ended attachment when nobody else can take its place", ({ host, container }) => {
  addNetworkList(runtime, list, { ...who, netns: gone });
  const couldOthers: boolean[] = [];
  const onHost = watched(host, () => void couldOthers.push(isFree()));
  addNetworkList(onHost, list, { ...who, netns: container.path });
  expect(couldOthers).toEqual([true, false]);
  expect(calls).toEqual(["ADD", "DEL", "ADD"]);
  expect(log).toEqual([expect.stringContaining("Removing what is left of")]);
});

/** A path that leads to one namespace and later to another. */
function newPath(first: Netns) {
  const path = join(mkdtempSync(`${root}/`), "netns");
  const lead = (to: Netns) => {
    rmSync(path, { force: true });
    symlinkSync(to.path, path);
  };
  lead(first);
  return { path, lead };
}

const cookieOfEntry = () => findEntry(runtime.cacheDirectory, { ...who, network: "web" })?.netnsCookie;

netnsTest("addNetworkList() looks which namespace it is when it waits for nobody any more", ({ host, container }) => {
  const couldWait: boolean[] = [];
  const onHost = on(host, (path) => {
    couldWait.push(isFree());
    return openNetns(path);
  });
  addNetworkList(onHost, list, { ...who, netns: container.path });
  expect([couldWait, cookieOfEntry()]).toEqual([[false], container.cookie]);
});

netnsTest("addNetworkList() does not say which of two namespaces the plugins were in", ({ host, container }) => {
  using second = createNetns();
  const { path, lead } = newPath(container);
  let during: string | undefined;
  work = () => {
    during = cookieOfEntry();
    lead(second);
  };
  addNetworkList(on(host), list, { ...who, netns: path });
  expect([during, cookieOfEntry()]).toEqual([container.cookie, undefined]);
});

netnsTest("addNetworkList() remembers the namespace also if it is off its path by the end", ({ host, container }) => {
  const { path } = newPath(container);
  work = () => rmSync(path);
  addNetworkList(on(host), list, { ...who, netns: path });
  expect(cookieOfEntry()).toBe(container.cookie!);
});

/** Whether somebody else could do something for the container now. */
function isFree(): boolean {
  try {
    lockContainer(runtime.cacheDirectory, who.containerId, { maxWaitMs: 0 })[Symbol.dispose]();
    return true;
  } catch (error) {
    if (error instanceof CniError && error.code === Code.TryAgainLater) return false;
    throw error;
  }
}
