/** What a server tells Prometheus. */
import { expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ServerStatus } from "../../server/status.ts";
import { REPOSITORY_ROOT } from "../../scripts/src/repository.ts";
import { CNI_PROGRAM, testWith } from "../../testing/binary.ts";
import { until } from "../../testing/netns.ts";
import { newServerSite, type ServerSite, WAITING_CALL_CODE } from "../../testing/server_site.ts";

const addressOf = (site: ServerSite): string => join(site.directory, "metrics.sock");
const startWithMetrics = (site: ServerSite) => site.start({ options: ["--metrics", `unix:${addressOf(site)}`] });
const metricsOf = ({ parts }: ServerStatus) => parts.find(({ name }) => name === "metrics")!;

async function get(site: ServerSite, path: string, headers: Record<string, string> = {}) {
  const response = await fetch(`http://localhost${path}`, { unix: addressOf(site), headers });
  return { status: response.status, type: response.headers.get("content-type")!, text: await response.text() };
}

/** The socket has its name before it listens. */
const untilItAnswers = (site: ServerSite) =>
  until(async () => (await get(site, "/healthz").catch(() => undefined))?.status === 200);

test("calls, their codes and durations are counted", async () => {
  await using site = newServerSite();
  const server = startWithMetrics(site);
  await server.untilReady();
  await site.callVersion();
  await site.callVersion();
  await site.startWaitingCall().finish();
  await untilItAnswers(site);
  let page = await get(site, "/metrics");
  await until(async () => (page = await get(site, "/metrics")).text.includes(`code="${WAITING_CALL_CODE}"`));
  expect(page.status).toBe(200);
  expect(page.type).toBe("text/plain; version=0.0.4; charset=utf-8");
  expect(page.text).toContain('\ncni_calls_total{program="bridge",command="VERSION",code="0"} 2\n');
  expect(page.text).toContain(`\ncni_calls_total{program="bridge",command="ADD",code="${WAITING_CALL_CODE}"} 1\n`);
  expect(page.text).toContain('\ncni_call_duration_seconds_count{program="bridge",command="VERSION"} 2\n');
  expect(page.text).toContain('\ncni_fallbacks_total{reason="not_allowed"} 0\n');
  expect(page.text).toMatch(/\ncni_private_memory_bytes\{process="metrics"\} \d+\n/);
  const openMetrics = await get(site, "/metrics", { accept: "application/openmetrics-text; version=1.0.0" });
  expect(openMetrics.type).toBe("application/openmetrics-text; version=1.0.0; charset=utf-8");
  expect(openMetrics.text).toEndWith("# EOF\n");
  expect([(await get(site, "/healthz")).status, (await get(site, "/readyz")).status]).toEqual([200, 200]);
  expect((await get(site, "/nothing")).status).toBe(404);
});

// Of Debian's package "prometheus".
testWith(["promtool"], "promtool accepts the page", async () => {
  await using site = newServerSite();
  await startWithMetrics(site).untilReady();
  await site.startWaitingCall().finish();
  await untilItAnswers(site);
  let text = "";
  await until(async () => (text = (await get(site, "/metrics")).text).includes(`code="${WAITING_CALL_CODE}"`));
  const { stdout, stderr } = Bun.spawnSync(["promtool", "check", "metrics"], { stdin: Buffer.from(text) });
  expect(`${stdout}${stderr}`).toBe("");
});

test("the process has few rights, in each of its threads", async () => {
  await using site = newServerSite();
  await startWithMetrics(site).untilReady();
  await untilItAnswers(site);
  const { pid } = metricsOf(site.status());
  const tasks = readdirSync(`/proc/${pid}/task`).map((task) =>
    readFileSync(`/proc/${pid}/task/${task}/status`, "utf8")
  );
  const limits = tasks.map((status) => [...status.match(/^(CapPrm|CapEff|CapBnd|NoNewPrivs|Seccomp):.*$/gm) ?? []]);
  // Capabilities 10 and 12.
  const [capabilities, filter] = ["0000000000001400", 2];
  const expected = [
    ...["CapPrm", "CapEff", "CapBnd"].map((set) => `${set}:\t${capabilities}`),
    ...["NoNewPrivs:\t1", `Seccomp:\t${filter}`],
  ];
  expect(limits).toEqual(limits.map(() => expected));
});

// Without a handler, signal 15; with one, status 0.
test.each([["SIGKILL", "signal 9"], ["SIGTERM", "signal 15"]] as const)(
  "after %s it starts again, and ends with a server that is killed",
  async (signal, end) => {
    await using site = newServerSite();
    const server = startWithMetrics(site);
    await server.untilReady();
    await until(() => metricsOf(site.status()).pid !== undefined);
    const first = metricsOf(site.status()).pid!;
    await untilItAnswers(site);
    process.kill(first, signal);
    await until(() => ![first, undefined].includes(metricsOf(site.status()).pid));
    expect(server.log()).toContain(`metrics (process ${first}) ended with ${end}: it starts again in 1 s\n`);
    const { pid, starts } = metricsOf(site.status());
    expect(starts).toBe(2);
    await untilItAnswers(site);
    server.process.kill("SIGKILL");
    await until(() => !existsSync(`/proc/${pid}`));
  },
);

test("a part that cannot start waits longer each time", async () => {
  await using site = newServerSite();
  using other = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response() });
  const server = site.start({ options: ["--metrics", `127.0.0.1:${other.port}`] });
  await server.untilReady();
  await until(() => metricsOf(site.status()).starts === 3);
  const pauses = () =>
    [...server.log().matchAll(/metrics \(.*: it starts again in (\d+) s$/gm)].map(([, seconds]) => seconds);
  await until(() => pauses().length === 3);
  expect(pauses()).toEqual(["1", "2", "4"]);
  const { stdout } = Bun.spawnSync([CNI_PROGRAM, "serve", "--status", "--socket", site.socket]);
  expect(`${stdout}`).toMatch(/^metrics +- +starts in [34] s/m);
});

test("a server that is replaced hands the address over", async () => {
  await using site = newServerSite();
  const first = startWithMetrics(site);
  await first.untilReady();
  await untilItAnswers(site);
  const second = site.start({ options: ["--metrics", `unix:${addressOf(site)}`, "--replace"] });
  expect(await first.process.exited).toBe(0);
  await second.untilReady();
  const version = async () => (await get(site, "/metrics")).text;
  await until(async () => (await version().catch(() => "")).includes('cni_workers{state="idle"} 2'));
});

test.each(["9469", "localhost:9469", "unix:metrics", "127.0.0.1:99999"])("--metrics %s is refused", async (address) => {
  await using site = newServerSite();
  const server = site.start({ options: ["--metrics", address] });
  expect(await server.process.exited).toBe(2);
  expect(server.log()).toContain(`got "${address}"`);
});

test("a file that is no socket stays where it is", async () => {
  await using site = newServerSite();
  writeFileSync(addressOf(site), "precious");
  const server = startWithMetrics(site);
  expect(await server.process.exited).toBe(2);
  expect(server.log()).toContain(`"${addressOf(site)}": a file is there that is no socket`);
  expect(readFileSync(addressOf(site), "utf8")).toBe("precious");
});

test("a port that another program has is an error that names it, and the directory of a socket is made", async () => {
  await using site = newServerSite();
  using other = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  const first = site.start({ options: ["--metrics", `127.0.0.1:${other.port}`] });
  await until(() => first.log().includes(`Cannot serve metrics on "127.0.0.1 port ${other.port}": `));
  const path = join(site.directory, "new/metrics.sock");
  const second = site.start({ options: ["--metrics", `unix:${path}`, "--replace"] });
  await second.untilReady();
  await until(async () =>
    (await fetch("http://localhost/healthz", { unix: path }).catch(() => undefined))?.ok === true
  );
});

test("the page of the docs and the dashboard name the metrics that there are", async () => {
  await using site = newServerSite();
  await startWithMetrics(site).untilReady();
  await untilItAnswers(site);
  const names = [...(await get(site, "/metrics")).text.matchAll(/^# TYPE (\w+)/gm)].map(([, name]) => name!);
  const read = (path: string) => readFileSync(join(REPOSITORY_ROOT, path), "utf8");
  const documented = [...read("docs/metrics.md").matchAll(/^\| `(cni_\w+)`/gm)].map(([, name]) => name!);
  expect(documented.sort()).toEqual(names.sort());
  const shown = new Set(read("docs/dashboard.json").match(/cni_\w+/g)!.map((name) => name.replace(/_bucket$/, "")));
  expect([...shown].filter((name) => !names.includes(name))).toEqual([]);
});
