import { expect, test } from "bun:test";
import { readFileSync, statSync } from "node:fs";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import { getGenerationId } from "../../../ffi/nft/objects.ts";
import { transaction } from "../../../ffi/nft/transaction.ts";
import { type Netns, openNetns } from "../../../ffi/netns/netns.ts";
import { netnsLockPath } from "../../../ffi/netns/lock.ts";
import { ENOBUFS, EPERM, ERESTART } from "../../../ffi/sys/errno.ts";
import { holdNetnsLock } from "../../../testing/netns_lock.ts";
import { runInNetns } from "../../../testing/netns.ts";
import firewall from "../../firewall/plugin.ts";
import portmap from "../../portmap/plugin.ts";
import { portMappingConfig } from "../../../testing/portmap.ts";
import { CniError } from "../../../spec/error.ts";
import { bridgeNetworkTest } from "../../../testing/bridge_network.ts";
import { retryOnConflict } from "./retry.ts";

const refusal = (errno: number) => new NetlinkError({ request: "NFT_MSG_NEWSETELEM", errno });
const EBUSY = 16;

/** What comes of attempts that always fail, and how many there were. */
function attempts(errno: number, patienceMs?: number): { error: Error & { code: unknown }; count: number } {
  let count = 0;
  try {
    retryOnConflict(() => {
      count++;
      throw refusal(errno);
    }, patienceMs);
  } catch (error) {
    return { error: error as Error & { code: unknown }, count };
  }
  throw new Error("it succeeded");
}

test("a ruleset that others change without end is given up after a while, to be tried again later", () => {
  const began = performance.now();
  const { error, count } = attempts(ERESTART, 20);
  expect(performance.now() - began).toBeGreaterThan(20);
  expect(error).toBeInstanceOf(CniError);
  expect(error).toMatchObject({
    code: 11,
    message: `Cannot change the ruleset: other programs changed it during each of ${count} attempts in 0.02 s`,
    details: expect.stringContaining("ERESTART"),
  });
});

test("conflicts that persist are told as they are, and other refusals at once", () => {
  expect(attempts(EBUSY)).toMatchObject({ count: 11, error: { code: "EBUSY" } });
  expect(attempts(ENOBUFS)).toMatchObject({ count: 11, error: { code: "ENOBUFS" } });
  expect(attempts(EPERM)).toMatchObject({ count: 1, error: { code: "EPERM" } });
  let left = 3;
  expect(retryOnConflict(() => {
    if (left-- > 0) throw refusal(ERESTART);
    return "done";
  })).toBe("done");
});

test("an attempt knows why the one before was refused: only some refusals ask for a repair", () => {
  const errnos = [ERESTART, EBUSY];
  const seen: (string | undefined)[] = [];
  retryOnConflict((conflict) => {
    seen.push(conflict?.code);
    const errno = errnos.shift();
    if (errno !== undefined) throw refusal(errno);
  });
  expect(seen).toEqual([undefined, "ERESTART", "EBUSY"]);
});

const FFI = `${import.meta.dir}/../../../ffi`;

/** A program that changes the ruleset as fast as it can, by two changes in each commit that leave it as it was. */
async function committer(host: Netns): Promise<Disposable> {
  const script = `
    import { currentNetns } from "${FFI}/netns/netns.ts";
    import { transaction } from "${FFI}/nft/transaction.ts";
    const { nft } = currentNetns();
    const table = { family: 1, table: "busy" };
    transaction(nft).addTable({ family: 1, name: "busy" }).commit();
    console.log("ready");
    for (;;) transaction(nft).addChain({ ...table, name: "c" }).deleteChain(table, "c").commit();`;
  const command = [process.execPath, "-e", script];
  const { child } = host.run(() => ({ child: Bun.spawn(command, { stdin: "ignore", stdout: "pipe" }) }));
  const { value } = await child.stdout.getReader().read();
  if (!value) throw new Error("The program that was to change the ruleset has ended");
  return { [Symbol.dispose]: () => child.kill("SIGKILL") };
}

bridgeNetworkTest("ADD and DEL succeed while another program changes the ruleset all the time", async (network) => {
  const { host, call } = network;
  const container = network.container(2);
  const config = portMappingConfig([{ hostPort: 8080, containerPort: 80 }, {
    hostPort: 53,
    containerPort: 53,
    protocol: "udp",
  }]);
  runInNetns(
    host,
    "nft",
    "add table inet site; add chain inet site fw { type filter hook forward priority 0; policy drop; }",
  );
  const before = runInNetns(host, "nft", "-a", "list", "table", "inet", "site");
  using _committer = await committer(host);
  const began = getGenerationId(host.nft);
  // Until the other program has had its share of the processors.
  for (let i = 0; i < 25 || getGenerationId(host.nft) - began < 1000; i++) {
    for (const plugin of [portmap, firewall]) call(plugin, "ADD", config, { container, containerId: `c${i}` });
    for (const plugin of [firewall, portmap]) call(plugin, "DEL", config, { container, containerId: `c${i}` });
  }
  expect(runInNetns(host, "nft", "list", "table", "inet", "cni")).not.toContain("elements");
  expect(runInNetns(host, "nft", "-a", "list", "table", "inet", "site")).toBe(before);
  // Without further attempts they would not.
  const read = getGenerationId(host.nft);
  while (getGenerationId(host.nft) === read);
  const late = transaction(host.nft).addChain({ family: 1, table: "cni", name: "late" });
  expect(() => late.commit(read)).toThrow("ERESTART");
}, 60_000);

const ownNetns = (): Pick<Netns, "identity"> => {
  using netns = openNetns("/proc/self/ns/net");
  return { identity: netns.identity };
};

/** Who has the lock of our namespace. */
const holders = (): string[] => {
  const { ino } = statSync(netnsLockPath(ownNetns().identity, "ruleset"), { throwIfNoEntry: false }) ?? {};
  return readFileSync("/proc/locks", "utf8").split("\n")
    .filter((line) => line.includes(`:${ino} `) && !line.includes("->")).map((line) => line.split(/\s+/)[4]!);
};

test("who was too late three times goes alone, until it is through", () => {
  const seen: boolean[] = [];
  retryOnConflict(() => {
    seen.push(holders().includes(`${process.pid}`));
    if (seen.length <= 4) throw refusal(ERESTART);
  });
  expect(seen).toEqual([false, false, false, true, true]);
  expect(holders()).not.toContain(`${process.pid}`);
});

test("who does not get its turn because somebody hangs continues without it", async () => {
  const other = await holdNetnsLock(ownNetns(), "ruleset");
  let count = 0;
  retryOnConflict(() => {
    if (++count <= 5) throw refusal(ERESTART);
  });
  expect(count).toBe(6);
  await other.end();
});

test("who did not get its turn goes to the queue again, and is alone when the others are done", async () => {
  const other = await holdNetnsLock(ownNetns(), "ruleset");
  const seen: boolean[] = [];
  let ended: Promise<void> | undefined;
  retryOnConflict(() => {
    seen.push(holders().includes(`${process.pid}`));
    if (seen.length === 4) ended = other.end();
    if (seen.length <= 5) throw refusal(ERESTART);
  });
  await ended;
  expect(seen).toEqual([false, false, false, false, true, true]);
});

test("an attempt within another does not wait for the process's own turn", () => {
  const began = performance.now();
  const seen: boolean[] = [];
  retryOnConflict(() => {
    let left = 4;
    retryOnConflict(() => {
      if (seen.length > 4 && left-- > 0) throw refusal(ERESTART);
    });
    seen.push(holders().includes(`${process.pid}`));
    if (seen.length <= 5) throw refusal(ERESTART);
  });
  expect(seen).toEqual([false, false, false, true, true, true]);
  expect(holders()).not.toContain(`${process.pid}`);
  expect(performance.now() - began).toBeLessThan(900);
});

test("who is asked to end in the middle of an ADD does not wait for the ruleset any longer", () => {
  const script = `
    import { NetlinkError } from "${FFI}/netlink/error.ts";
    import { blockSignals } from "${FFI}/sys/signals.ts";
    import { retryOnConflict } from "${import.meta.dir}/retry.ts";
    blockSignals();
    let count = 0;
    try {
      retryOnConflict(() => {
        if (++count === 5) process.kill(process.pid, "SIGTERM");
        throw new NetlinkError({ request: "NFT_MSG_NEWSETELEM", errno: ${ERESTART} });
      });
    } catch ({ code, message }) {
      console.log(JSON.stringify({ count, code, message }));
    }`;
  // For all threads, of which the plugin has one only.
  const argv = ["env", "--block-signal=TERM", process.execPath, "-e", script];
  const { stdout, stderr } = Bun.spawnSync(argv, { stdin: "ignore" });
  expect([JSON.parse(stdout.toString()), stderr.toString()]).toEqual([{
    count: 5,
    code: 11,
    message: "Cannot attach the container: the process was asked to end by SIGTERM",
  }, ""]);
});
