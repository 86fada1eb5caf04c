import type { Dns } from "./result.ts";

/** Ignores unknown keywords of resolv.conf(5). Lines with `search` or `options` add up. */
export function parseResolvConf(text: string): Dns {
  const nameservers: string[] = [];
  const search: string[] = [];
  const options: string[] = [];
  let domain: string | undefined;
  for (const line of text.split("\n")) {
    const [keyword, ...values] = line.trim().split(/\s+/);
    if (keyword.startsWith("#") || keyword.startsWith(";") || values.length === 0) continue;
    if (keyword === "nameserver") nameservers.push(values[0]!);
    else if (keyword === "domain") domain = values[0]!;
    else if (keyword === "search") search.push(...values);
    else if (keyword === "options") options.push(...values);
  }
  return {
    ...(nameservers.length > 0 && { nameservers }),
    ...(domain !== undefined && { domain }),
    ...(search.length > 0 && { search }),
    ...(options.length > 0 && { options }),
  };
}
