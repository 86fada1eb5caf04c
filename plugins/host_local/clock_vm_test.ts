/**
 * Reservations that do not tell their boot, on a machine whose clock is set: only those go that are older than this boot by all that the
 * kernel saw of it.
 */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type HostLocalNetwork, newHostLocalNetwork } from "../../testing/host_local.ts";

const DAY_S = 86_400;
const DEVICE = "/dev/of-the-beginning";

function run(...command: string[]): void {
  const { exitCode, stderr } = Bun.spawnSync(command);
  if (exitCode !== 0) throw new Error(`${command.join(" ")}: ${stderr}`);
}

let ahead = 0;
/** Sets the clock so many days ahead of what is true. */
function setClock(days: number): void {
  const seconds = (days - ahead) * DAY_S;
  run("date", "-s", `@${Math.round(Date.now() / 1000) + seconds}`);
  ahead = days;
}

let net: HostLocalNetwork;
beforeEach(() => {
  // Room for 10.0.0.2 and 10.0.0.3, of which another program has the first.
  net = newHostLocalNetwork({ ranges: [[{ subnet: "10.0.0.0/29", rangeEnd: "10.0.0.3" }]] });
  mkdirSync(net.directory);
});
afterEach(() => {
  setClock(0);
  rmSync(DEVICE, { force: true });
  net[Symbol.dispose]();
});

const reserveAsOthersDo = () => writeFileSync(join(net.directory, "10.0.0.2"), "foreign\r\neth0");

function expectReclaimed(): void {
  net.add("a");
  expect(net.add("b")).toBe("10.0.0.2");
  expect(net.log).toEqual([expect.stringContaining('10.0.0.2 of container "foreign", interface "eth0"')]);
  expect(() => net.add("c")).toThrow("are in use");
}

function expectKept(): void {
  net.add("a");
  expect(() => net.add("b")).toThrow("are in use");
  expect([net.files()["10.0.0.2"], net.log]).toEqual(["foreign\r\neth0", []]);
}

test("a file from before the boot is given up", () => {
  setClock(-30);
  reserveAsOthersDo();
  setClock(0);
  expectReclaimed();
});

test("a file that is older than this boot by less than an hour stays", () => {
  setClock(-1 / 48);
  reserveAsOthersDo();
  setClock(0);
  expectKept();
});

test("where this boot began with a clock that was behind, its files stay", () => {
  setClock(-30);
  run("mknod", DEVICE, "c", "1", "3");
  reserveAsOthersDo();
  setClock(0);
  expectKept();
});

test("where the clock is ahead by now, the files of this boot stay", () => {
  reserveAsOthersDo();
  setClock(400);
  expectKept();
});
