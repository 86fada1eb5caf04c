import { expect, test } from "bun:test";
import { fitMessage, MESSAGE_INDENT } from "./message.ts";

const fit = (text: string, columns: number): string[] => fitMessage(text, columns).split("\n");

test("fitMessage() breaks lines at blanks only", () => {
  const text = 'cni: Cannot open "/run/netns/a-long-name" of container 0123456789abcdef: no such file';
  for (const columns of [80, 68, 60, 40, 12]) {
    const lines = fit(text, columns);
    expect(lines.join(" ").replace(/ +/g, " ")).toBe(text);
    for (const line of lines.filter((line) => line.length > columns)) expect(line.trim()).not.toContain(" ");
  }
  expect(fit(text, 40)).toEqual([
    "cni: Cannot open",
    '     "/run/netns/a-long-name" of',
    "     container 0123456789abcdef: no such",
    "     file",
  ]);
});

test("fitMessage() leaves commands whole, for copying", () => {
  expect(fit('cni: Network "web" is unknown: see what is attached with "cni run list web"', 60)).toEqual([
    'cni: Network "web" is unknown: see what is attached with',
    '     "cni run list web"',
  ]);
  expect(fit("     to detach all of them: cni run gc web --all --conf-dir /etc/cni/net.d", 40)).toEqual([
    "     to detach all of them:",
    `${MESSAGE_INDENT}cni run gc web --all --conf-dir /etc/cni/net.d`,
  ]);
});
