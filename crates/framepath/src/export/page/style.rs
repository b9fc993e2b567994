// SPDX-License-Identifier: MIT OR Apache-2.0
//! Style sheet of the page.

/// Style sheet, for light and dark screens. The colours of causes are those of the lab's reports, from the set of
/// Okabe and Ito, which readers with the common kinds of colour blindness can distinguish.
pub(super) const SHEET: &str = "
:root{color-scheme:light dark;--ground:#fff;--ink:#1a1e23;--soft:#57606b;--rule:#c5cad1;--line:#1a1e23;
--compute:#0067a5;--copy:#e69f00;--queue:#00845f;--held:#b9d7a8;--wakeup:#7cc3ee;--preempted:#c54a00;
--throttled:#9a2fe0;--stopped:#e0115f;--stolen:#8a5a2b;--blocked:#d18ab3;--paced:#d9d2c3;--device:#e8dc3c;--network:#6d4c33;--pool:#5b4a9c;--unexplained:#9aa1aa}
@media (prefers-color-scheme:dark){:root{--ground:#14171a;--ink:#e8eaed;--soft:#a3acb7;--rule:#454d56;--line:#e8eaed}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,'Segoe UI','Liberation Sans',Arial,sans-serif}
main{max-width:1120px;margin:0 auto;padding:24px 20px 56px}
code{font:13px/1.4 ui-monospace,'Liberation Mono',Menlo,monospace;overflow-wrap:anywhere}
h1{font-size:24px;line-height:1.3;margin:4px 0 8px;text-wrap:balance}
h2{font-size:18px;line-height:1.35;margin:32px 0 8px;padding-top:12px;border-top:1px solid var(--rule);text-wrap:balance}
p{max-width:90ch;margin:6px 0}
.path,.facts,.axis,.sink{color:var(--soft)}
.facts,.axis{font-size:13px}
.notes{margin:6px 0;padding-left:20px}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:13px}
.box{display:inline-block;width:11px;height:11px;margin-right:5px}
.bars{display:grid;grid-template-columns:minmax(0,1fr) auto;gap:2px 12px}
.bars .sum{white-space:nowrap;text-align:right;font-variant-numeric:tabular-nums}
.bars .bar{grid-column:1/-1;display:flex;height:24px;margin-bottom:8px;border-left:1px solid var(--rule)}
.bars .bar span{min-width:1px;overflow:hidden;white-space:nowrap;font-size:12px;line-height:24px;padding-left:0;text-indent:5px}
.frames{display:flex;gap:8px}
.frames .scale{display:flex;flex-direction:column;justify-content:space-between;text-align:right;
font-size:12px;color:var(--soft);white-space:nowrap}
.frames svg{flex:1;min-width:0;height:200px;border-left:1px solid var(--rule);border-bottom:1px solid var(--rule)}
.axis{display:flex;justify-content:space-between;gap:12px;max-width:none}
.median{fill:none;stroke:var(--line);stroke-width:1;stroke-dasharray:4 3;vector-effect:non-scaling-stroke}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:13px}
th,td{padding:4px 10px 4px 0;border-bottom:1px solid var(--rule);vertical-align:top}
th{font-weight:600;text-align:left;white-space:nowrap}
.hops td,.hops tr:first-child th:not(:first-child){text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.hops tr th:first-child{position:sticky;left:0;background:var(--ground);min-width:9em;max-width:42vw;white-space:normal}
.hops .all{font-weight:600}
.c-compute{background:var(--compute);fill:var(--compute);color:#fff}
.c-copy{background:var(--copy);fill:var(--copy);color:#1a1e23}
.c-queue{background:var(--queue);fill:var(--queue);color:#fff}
.c-held{background:var(--held);fill:var(--held);color:#1a1e23}
.c-wakeup{background:var(--wakeup);fill:var(--wakeup);color:#1a1e23}
.c-preempted{background:var(--preempted);fill:var(--preempted);color:#fff}
.c-throttled{background:var(--throttled);fill:var(--throttled);color:#fff}
.c-stopped{background:var(--stopped);fill:var(--stopped);color:#fff}
.c-stolen{background:var(--stolen);fill:var(--stolen);color:#fff}
.c-blocked{background:var(--blocked);fill:var(--blocked);color:#1a1e23}
.c-paced{background:var(--paced);fill:var(--paced);color:#1a1e23}
.c-device{background:var(--device);fill:var(--device);color:#1a1e23}
.c-network{background:var(--network);fill:var(--network);color:#fff}
.c-pool{background:var(--pool);fill:var(--pool);color:#fff}
.c-unexplained{background:var(--unexplained);fill:var(--unexplained);color:#1a1e23}
@media (max-width:600px){main{padding:16px 12px 40px}h1{font-size:20px}}
";
