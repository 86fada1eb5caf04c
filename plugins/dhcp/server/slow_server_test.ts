/** DHCP servers that take their time, or have no address yet. */
import { expect } from "bun:test";
import { join } from "node:path";
import { ENGINE_ENV, fullProgramLink } from "../../../testing/binary.ts";
import { type DhcpLan, dhcpLanTest } from "../../../testing/dhcp.ts";

const SLOW_SERVER = join(import.meta.dir, "../../../testing/slow_dhcp_server.ts");

interface SlowServer extends Disposable {
  /** The messages that have come: `["discover", 1234.5]`. */
  end(): Promise<(readonly [type: string, ms: number])[]>;
}

async function startSlowServer({ lan }: DhcpLan, offerMs: string, ackMs: string): Promise<SlowServer> {
  const child = lan.run(() => ({
    process: Bun.spawn([process.execPath, SLOW_SERVER, offerMs, ackMs], { stdin: "ignore", stdout: "pipe" }),
  })).process;
  const reader = child.stdout.getReader();
  let text = new TextDecoder().decode((await reader.read()).value);
  const rest = (async () => {
    for (let piece = await reader.read(); piece.value; piece = await reader.read()) {
      text += new TextDecoder().decode(piece.value);
    }
  })();
  return {
    async end() {
      child.kill("SIGKILL");
      await rest;
      return text.trim().split("\n").slice(1).map((line) => {
        const [type = "", ms] = line.split(" ");
        return [type, Number(ms)];
      });
    },
    [Symbol.dispose]: () => child.kill("SIGKILL"),
  };
}

/** @returns the error document, or the result */
async function add({ host, container, config }: DhcpLan): Promise<{ readonly code?: number; readonly ips?: unknown }> {
  const child = host.run<Bun.Subprocess<Buffer, "pipe">>(() =>
    Bun.spawn([fullProgramLink("bridge")], {
      env: { ...ENGINE_ENV, CNI_COMMAND: "ADD", CNI_CONTAINERID: "c1", CNI_NETNS: container.path },
      stdin: Buffer.from(JSON.stringify({ cniVersion: "1.1.0", type: "bridge", ...config })),
      stdout: "pipe",
    })
  );
  return JSON.parse(await new Response(child.stdout).text());
}

dhcpLanTest("a server that acknowledges after the last try is believed", async (lan) => {
  using server = await startSlowServer(lan, "0", "4000");
  await lan.startLeaseServer("--resendtimeout", "15s");
  expect(await add(lan)).toMatchObject({ ips: [{ address: "10.7.0.10/24" }] });
  const types = (await server.end()).map(([type]) => type);
  // After four requests it was asked anew, and granted the first one.
  expect(types.slice(0, 6)).toEqual(["discover", "request", "request", "request", "request", "discover"]);
}, []);

/** The Go plugin sends after so many timeouts: 0, 1, 3, then again 1 and 2 timeouts later, with a pause of 1 to 3 s. */
dhcpLanTest("while an ADD waits for an address, the pauses grow no longer than the timeout", async (lan) => {
  using server = await startSlowServer(lan, "never", "never");
  await lan.startLeaseServer("-timeout", "1s", "-resendmax", "60s", "--resendtimeout", "9s");
  expect(await add(lan)).toMatchObject({ code: 11 });
  const times = (await server.end()).map(([, ms]) => ms);
  const pauses = times.slice(1).map((ms, i) => ms - times[i]!);
  // Doubled pauses would be of 1.75 s and 3.5 s. A busy machine may send one late.
  expect(pauses.filter((pause) => pause > 1600).length).toBeLessThan(2);
  expect(times.length).toBeGreaterThanOrEqual(9);
}, []);
