/** Commands, files and headings that the documentation names exist. */
import { expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";

const PAGES = [
  "README.md",
  ...readdirSync(join(REPOSITORY_ROOT, "docs")).filter((name) => name.endsWith(".md"))
    .map((name) => `docs/${name}`),
];
const TEST_FILES = [
  ...new Bun.Glob("{cmd,deploy,e2e,ffi,plugins,runtime,scripts,spec}/**/*_test.ts").scanSync(REPOSITORY_ROOT),
];

test.each(PAGES)("%s names scripts, parts of tests and files that there are", (page) => {
  const text = readFileSync(join(REPOSITORY_ROOT, page), "utf8");
  const missing = [...text.matchAll(/\bscripts\/([\w-]+)((?: [a-z_]+)*)/g)].flatMap(
    ([command, name = "", words = ""]) => {
      if (!existsSync(join(REPOSITORY_ROOT, "scripts", name))) return [command];
      const parts = name === "test" ? words.split(" ").filter((word) => word !== "") : [];
      return parts.filter((part) => !TEST_FILES.some((path) => path.includes(part))).map((part) =>
        `${command}: ${part}`
      );
    },
  );
  const links = [...text.matchAll(/\]\(([^)]+)\)/g)].map(([, target = ""]) => target)
    .filter((target) => !target.includes("://") && !leadsSomewhere(page, target));
  expect([...missing, ...links]).toEqual([]);
});

/** @param target `serve.md`, `serve.md#names`, `#names` */
function leadsSomewhere(page: string, target: string): boolean {
  const [file = "", anchor] = target.split("#");
  const path = join(REPOSITORY_ROOT, file === "" ? page : join(dirname(page), file));
  return existsSync(path) && (anchor === undefined || anchorsOf(readFileSync(path, "utf8")).includes(anchor));
}

/** As web pages make them from headings. */
const anchorsOf = (text: string): string[] =>
  Array.from(
    text.matchAll(/^#+ (.+)$/gm),
    ([, title = ""]) => title.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, "").replaceAll(" ", "-"),
  );

test("README leads to each page", () => {
  const text = readFileSync(join(REPOSITORY_ROOT, "README.md"), "utf8");
  expect(PAGES.filter((page) => page !== "README.md" && !text.includes(`(${page})`))).toEqual([]);
});
