/**
 * A dnsmasq in a namespace of the test, as a resolver of others: what it was asked, it says.
 *
 * @module
 */
import type { Netns } from "../ffi/netns/netns.ts";
import { until } from "./netns.ts";

/** A resolver that runs until it is disposed of. */
export interface Dnsmasq extends Disposable {
  /** The questions so far: `A www.example.test`. */
  questions(): string[];
}

const DNSMASQ = `dnsmasq --keep-in-foreground --conf-file=/dev/null --no-hosts --no-resolv --user=root --pid-file \
--log-queries --log-facility=- --bind-interfaces`.split(" ");

/** Starts it at an address. @param options of its command line */
export async function startDnsmasq(netns: Netns, address: string, ...options: string[]): Promise<Dnsmasq> {
  const child = netns.run(() => ({
    process: Bun.spawn([
      ...DNSMASQ,
      `--listen-address=${address}`,
      ...options,
    ], { stdin: "ignore", stdout: "ignore", stderr: "pipe" }),
  })).process;
  let log = "";
  (async () => {
    const decoder = new TextDecoder();
    for await (const chunk of child.stderr) log += decoder.decode(chunk);
  })();
  await until(() => log.includes("started"));
  return {
    questions: () => [...log.matchAll(/query\[(\w+)\] (\S+) from/g)].map(([, type, name]) => `${type} ${name}`),
    [Symbol.dispose]: () => child.kill("SIGKILL"),
  };
}
