import { expect } from "bun:test";
import { testWith } from "../../testing/binary.ts";
import { escapeRoff, markdownToRoff, verbatim } from "./roff.ts";

/** What is left of text in plain ASCII or UTF-8, without blank lines. */
function plain(roff: string): string {
  const argv = ["groff", "-man", "-ww", "-Tutf8", "-P-cbou"];
  const { stdout, stderr } = Bun.spawnSync(argv, { stdin: Buffer.from(`.TH X 8\n.nh\n.ad l\n${roff}\n`) });
  expect(stderr.toString()).toBe("");
  return stdout.toString().split("\n").slice(1, -2).filter((line) => line !== "").join("\n");
}

testWith(["groff"], "escapeRoff() lets every character through as it is", () => {
  const text = [".TH not a macro", "'br nor this", "a\\fBb\\n \"c\" 'd' `e` ^~ -x --y … é 漢"].join("\n");
  expect(plain(verbatim(text))).toBe(text.replace(/^/gm, "           "));
  expect(escapeRoff("\\")).toBe("\\e");
});

testWith(["groff"], "markdownToRoff() leaves neither marks nor links", () => {
  expect(plain(markdownToRoff("Use `--x` or [the `page`](a.md#b)."))).toBe("Use --x or the page.");
});
