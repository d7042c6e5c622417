"""The page's looks: light and dark, phone and paper."""

from loadgen.report.svg import COLOURS, STYLE

CSS = (
    """
:root{color-scheme:light dark;--bg:#fff;--text:#1c1e21;--dim:#5b6068;--edge:#d9dce1;--grid:#e6e8eb;--soft:#f5f6f8;--mark:#a33}
@media(prefers-color-scheme:dark){:root{--bg:#16181b;--text:#e6e7e9;--dim:#a2a8b0;--edge:#3a3e44;--grid:#2c3035;--soft:#1f2226;--mark:#f88}
.line.s7{stroke:#fff!important}.dot.s7{fill:#fff!important}i.s7{background:#fff!important}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--text);font:15px/1.5 system-ui,sans-serif}
main{max-width:1240px;margin:0 auto;padding:20px 16px 60px}
h1{font-size:1.5rem;margin:.2em 0}h2{font-size:1.15rem;margin:2em 0 .6em;border-bottom:1px solid var(--edge);padding-bottom:.2em}
h3{font-size:1rem;margin:1.2em 0 .4em}header p,.dim{color:var(--dim);margin:.2em 0}
.alarms{padding:10px 14px 10px 30px;background:var(--soft);border-left:4px solid #e69f00;margin:1em 0}
.alarms .bad{color:var(--mark);font-weight:600}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:1.2em 0}
.tiles div{background:var(--soft);border:1px solid var(--edge);border-radius:8px;padding:10px 12px}
.tiles b{display:block;font-size:1.35rem}.tiles span{color:var(--dim);font-size:.85rem}
.verdicts li{margin:.35em 0;font-size:1.02rem}
.wide{overflow-x:auto;margin:.6em 0}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}
th,td{padding:4px 9px;text-align:right;border-bottom:1px solid var(--edge);white-space:nowrap}
tbody th,thead th:first-child{text-align:left;position:sticky;left:0;background:var(--bg);font-weight:600}
thead th{color:var(--dim);font-weight:600}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr));gap:18px}
figure{margin:0;border:1px solid var(--edge);border-radius:8px;padding:10px;break-inside:avoid}
figcaption{font-weight:600;margin-bottom:4px}figure svg{width:100%;height:auto;display:block}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 14px;margin:6px 0 0;padding:0;font-size:.82rem}
.legend i{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:5px;vertical-align:-1px}
pre{background:var(--soft);padding:10px;overflow-x:auto;font-size:.8rem}
@media(max-width:600px){body{font-size:14px}main{padding:12px 10px 40px}th,td{padding:3px 6px}}
@media print{:root{--bg:#fff;--text:#000;--dim:#444;--edge:#bbb;--grid:#ddd;--soft:#fff}body{font-size:10pt}main{max-width:none;padding:0}
.wide{overflow:visible}table{font-size:6.5pt}th,td{padding:1px 3px;white-space:normal}tr,figure,.tiles div{break-inside:avoid}
.figures{grid-template-columns:1fr 1fr}details{display:none}tbody th,thead th:first-child{position:static}}
"""
    + STYLE
    + COLOURS
)
