import { afterAll, expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { newCliSandboxes } from "../../testing/cli.ts";
import { runInTerminal } from "../../testing/terminal.ts";

const { root, cni } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));
const titleOf = (...words: string[]) => cni(["man", ...words]).stdout.split("\n")[0];

test("cni man prints the program's page, or the one that is named", () => {
  expect(titleOf()).toStartWith('.TH "CNI" "8" "" "cni ');
  for (const name of ["run", "cni-run(8)"]) {
    expect(titleOf(name)).toStartWith('.TH "CNI\\-RUN" "8"');
  }
  expect(titleOf("cni.conflist.5")).toStartWith('.TH "CNI.CONFLIST" "5"');
  expect(titleOf("bridge")).toStartWith('.TH "CNI\\-BRIDGE" "8"');
  expect(cni(["man", "--list"]).stdout.split("\n").slice(0, 2)).toEqual(["cni.8", "cni-run.8"]);
  expect(cni(["man", "brigde"])).toMatchObject({
    exitCode: 2,
    stdout: "",
    stderr: expect.stringContaining('there is no page "brigde"; did you mean "bridge"?'),
  });
  expect(cni(["man", "nosuch"]).stderr).toContain('there is no page "nosuch"; "cni man --list" names all pages');
});

test("a terminal is told how to read the page", () => {
  const words = [process.execPath, join(import.meta.dir, "../cni.ts"), "man", "bridge"];
  const { text } = runInTerminal(words, { env: ["NO_COLOR=1"] });
  expect(text).toEndWith("\ncni: That was roff; to read the page: man -l <(cni man bridge)\n");
  expect(cni(["man", "bridge"]).stderr).toBe("");
});
