"""Known malicious packages: names that only attackers published, and hijacked versions of other packages.

`TABLE` has one row for each package, sorted: the ecosystem, the normalized name, the bad versions (`*`: all of them),
the date and the source of the report. The source is the number of an advisory, or the organisation that reported the
package. `tests/support/make_malicious_packages.py` merges records of the OSV format into it. No list is complete.
Imported only when an install is judged.
"""

from functools import cache
from typing import NamedTuple


class MaliciousPackage(NamedTuple):
    """One row of the table. Empty `versions` stand for all versions."""

    versions: frozenset[str]
    date: str
    source: str


@cache
def _rows() -> dict[str, str]:
    """Return the rest of each row by its ecosystem and name."""
    found = {}
    for line in TABLE.split("\n")[1:-1]:
        ecosystem, name, rest = line.split(" ", 2)
        found[f"{ecosystem} {name}"] = rest
    return found


def known_malicious(ecosystem: str, name: str) -> MaliciousPackage | None:
    """Return what is known about the package with this normalized name, or None."""
    rest = _rows().get(f"{ecosystem} {name}")
    if rest is None:
        return None
    versions, date, source = rest.split(" ", 2)
    return MaliciousPackage(frozenset() if versions == "*" else frozenset(versions.split(",")), date, source)


TABLE = """
cargo acceptxmr_rs * 2023-11-15 RUSTSEC-2023-0115
cargo arone * 2026-08-20 RUSTSEC-2026-0259
cargo aronenao * 2026-08-20 RUSTSEC-2026-0261
cargo bit_flags * 2023-12-22 RUSTSEC-2023-0124
cargo chrono_anchor * 2026-03-10 RUSTSEC-2026-0039
cargo clob_sdk * 2026-02-20 RUSTSEC-2026-0017
cargo custom_req_on_workers * 2025-01-30 RUSTSEC-2025-0160
cargo dnp3times * 2026-03-04 RUSTSEC-2026-0032
cargo envlogger * 2023-08-16 RUSTSEC-2023-0099
cargo evm_units * 2025-12-03 RUSTSEC-2025-0147
cargo exploration * 2026-06-02 RUSTSEC-2026-0155
cargo finch_cli_rust * 2025-12-09 RUSTSEC-2025-0152
cargo finch_rst * 2025-12-09 RUSTSEC-2025-0150
cargo finch_rust * 2025-12-05 RUSTSEC-2025-0148
cargo hann_rs_service * 2023-11-18 RUSTSEC-2023-0123
cargo if_cfg * 2023-08-16 RUSTSEC-2023-0098
cargo jfrog_quotes * 2025-01-30 RUSTSEC-2025-0158
cargo lasso_rs * 2023-11-15 RUSTSEC-2023-0107
cargo lazystatic * 2023-08-16 RUSTSEC-2023-0097
cargo lfest_main * 2023-11-15 RUSTSEC-2023-0106
cargo libusb1_main * 2023-11-15 RUSTSEC-2023-0121
cargo littest * 2023-11-06 RUSTSEC-2023-0104
cargo logflux * 2026-06-03 RUSTSEC-2026-0171
cargo logprinter * 2026-04-09 RUSTSEC-2026-0084
cargo logtrace * 2026-04-05 RUSTSEC-2026-0081
cargo microsoftsystem64 * 2026-04-13 RUSTSEC-2026-0102
cargo monero_api * 2023-11-15 RUSTSEC-2023-0111
cargo monero_rpc_rs * 2023-11-15 RUSTSEC-2023-0112
cargo mysten_metrics * 2026-04-22 RUSTSEC-2026-0107
cargo oncecell * 2023-08-16 RUSTSEC-2023-0101
cargo onering 1.4.1 2026-06-10 RUSTSEC-2026-0175
cargo openvpn_plugin_rs * 2023-11-18 RUSTSEC-2023-0119
cargo polymarket_client_sdks * 2026-02-13 RUSTSEC-2026-0011
cargo polymarket_clients_sdk * 2026-02-06 RUSTSEC-2026-0010
cargo polymarkets_client_sdk * 2026-02-19 RUSTSEC-2026-0015
cargo polymarkets_rs_clob_client * 2026-02-20 RUSTSEC-2026-0016
cargo postgresderive * 2023-08-18 RUSTSEC-2023-0110
cargo postgress * 2023-08-16 RUSTSEC-2023-0103
cargo pretty_changelog_logger * 2026-04-13 RUSTSEC-2026-0100
cargo proc_macro1 * 2026-08-20 RUSTSEC-2026-0265
cargo proc_macro_en * 2026-08-20 RUSTSEC-2026-0264
cargo rands * 2025-02-10 RUSTSEC-2025-0155
cargo registry_win * 2023-11-15 RUSTSEC-2023-0116
cargo replit_ruspty * 2025-11-04 RUSTSEC-2025-0154
cargo rpc_check * 2026-02-19 RUSTSEC-2026-0014
cargo rustdecimal * 2022-05-10 RUSTSEC-2022-0042
cargo safe_agent_rs * 2026-04-13 RUSTSEC-2026-0101
cargo serd * 2023-08-16 RUSTSEC-2023-0102
cargo sha_rst * 2025-12-09 RUSTSEC-2025-0151
cargo sha_rust * 2025-12-05 RUSTSEC-2025-0146
cargo sophosfirewall_python * 2025-02-15 RUSTSEC-2025-0159
cargo statsrelay_protobuf * 2025-08-26 RUSTSEC-2025-0157
cargo sui_execution_cut * 2026-04-23 RUSTSEC-2026-0108
cargo tauri_win_rt_notification * 2023-11-20 RUSTSEC-2023-0108
cargo tauri_winrt_notifications * 2023-11-20 RUSTSEC-2023-0117
cargo time_calibrator * 2026-03-03 RUSTSEC-2026-0030
cargo time_calibrators * 2026-03-03 RUSTSEC-2026-0031
cargo time_sync * 2026-03-04 RUSTSEC-2026-0036
cargo tiny_server * 2023-11-06 RUSTSEC-2023-0114
cargo tinymember * 2026-08-20 RUSTSEC-2026-0263
cargo tracing_check * 2026-02-24 RUSTSEC-2026-0019
cargo tracing_checks * 2026-02-26 RUSTSEC-2026-0028
cargo tracing_ethers * 2026-03-14 RUSTSEC-2026-0040
cargo tracings * 2026-02-26 RUSTSEC-2026-0027
cargo tree_sitter_pkl * 2025-03-10 RUSTSEC-2025-0156
cargo uniswap_utils * 2025-12-03 RUSTSEC-2025-0145
cargo win_base64_rs * 2023-11-15 RUSTSEC-2023-0113
cargo win_crypto * 2023-11-15 RUSTSEC-2023-0109
cargo win_run_rs * 2023-11-15 RUSTSEC-2023-0118
cargo windows_service_rs * 2023-11-15 RUSTSEC-2023-0120
cargo windowsservice * 2023-11-18 RUSTSEC-2023-0105
cargo winx_rs * 2023-11-15 RUSTSEC-2023-0122
cargo xrvrv * 2023-08-16 RUSTSEC-2023-0100
npm @antv/adjust 0.3.5,0.4.5 2026-05-19 GHSA-qcp2-qp9h-qprg
npm @ctrl/deluge 7.2.1,7.2.2 2025-09-16 scttcper/deluge issue 116
npm @ctrl/ngx-emoji-mart 9.2.1,9.2.2 2025-09-16 scttcper/ngx-emoji-mart issue 448
npm @ctrl/tinycolor 4.1.1,4.1.2 2025-09-15 scttcper/tinycolor issue 257
npm @ledgerhq/connect-kit 1.1.5,1.1.6,1.1.7 2023-12-14 LedgerHQ/connect-kit issue 29
npm @lottiefiles/lottie-player 2.0.5,2.0.6,2.0.7 2024-10-30 airbnb/lottie-web issue 3127
npm @pkgr/core 0.2.8 2025-07-18 GHSA-f29h-pxvx-f335
npm @solana/web3.js 1.95.6,1.95.7 2024-12-03 CVE-2024-54134
npm ansi-regex 6.2.1 2025-09-08 debug-js/debug issue 1005
npm ansi-styles 6.2.2 2025-09-08 debug-js/debug issue 1005
npm axios 0.30.4,1.14.1 2026-03-31 axios/axios issue 10597
npm babelcli * 2017-08-02 CVE-2017-16060
npm backslash 0.2.1 2025-09-08 debug-js/debug issue 1005
npm chalk 5.6.1 2025-09-08 debug-js/debug issue 1005
npm chalk-template 1.1.1 2025-09-08 debug-js/debug issue 1005
npm coa 2.0.3,2.0.4,2.1.1,2.1.3,3.0.1,3.1.3 2021-11-04 GHSA-73qr-pfmq-6rp8
npm coalesce-generic * 2025-08-14 MAL-2025-17236
npm coalesce-utils * 2025-08-14 MAL-2025-17239
npm cofee-script * 2017-08-02 CVE-2017-16206
npm cofeescript * 2017-08-02 MAL-2025-17262
npm coffe-script * 2017-08-02 CVE-2017-16205
npm coffescript * 2017-08-02 CVE-2017-16203
npm color-convert 3.1.1 2025-09-08 debug-js/debug issue 1005
npm color-name 2.0.1 2025-09-08 debug-js/debug issue 1005
npm color-string 2.1.1 2025-09-08 debug-js/debug issue 1005
npm colors 1.4.1,1.4.2,1.4.44-liberty-2 2022-01-09 GHSA-5rqg-jm4f-cqx7
npm cross-env-superagent-umbriel-mongodb * 2025-08-14 MAL-2025-17704
npm cross-env.js * 2017-08-02 CVE-2017-16081
npm crossenv * 2017-08-02 CVE-2017-16074
npm debug 4.4.2 2025-09-08 debug-js/debug issue 1005
npm discordi.js * 2017-08-02 CVE-2017-16207
npm electron-native-notify * 2019-06-04 MAL-2025-19452
npm error-ex 1.3.3 2025-09-08 debug-js/debug issue 1005
npm eslint-config-eslint 5.0.2 2018-07-12 GHSA-hxxf-q3w9-4xgw
npm eslint-config-prettier 8.10.1,9.1.1,10.1.6,10.1.7 2025-07-18 CVE-2025-54313
npm eslint-plugin-coinbase * 2022-06-20 MAL-2022-2812
npm eslint-plugin-prettier 4.2.2,4.2.3 2025-07-18 GHSA-f29h-pxvx-f335
npm eslint-scope 3.7.2 2018-07-12 GHSA-hxxf-q3w9-4xgw
npm event-stream 3.3.6 2018-11-26 dominictarr/event-stream issue 116
npm fabric-js * 2017-08-02 CVE-2017-16053
npm faker 6.6.6 2022-01-06 GHSA-5w9c-rv96-fr7g
npm flatmap-stream * 2018-11-26 MAL-2025-20690
npm gruntcli * 2017-08-02 CVE-2017-16058
npm has-ansi 6.0.1 2025-09-08 debug-js/debug issue 1005
npm http-proxy.js * 2017-08-02 CVE-2017-16075
npm is-arrayish 0.3.3 2025-09-08 debug-js/debug issue 1005
npm jquery.js * 2017-08-02 CVE-2017-16045
npm jquey * 2017-08-02 CVE-2017-16204
npm mogodb-core * 2020-09-03 GHSA-g4m3-rpxr-h7vg
npm mongose-cli * 2025-08-29 MAL-2025-42025
npm mssql-node * 2017-08-02 CVE-2017-16059
npm mssql.js * 2017-08-02 CVE-2017-16056
npm mysqljs * 2017-08-02 CVE-2017-16047
npm napi-postinstall 0.3.1 2025-07-18 GHSA-f29h-pxvx-f335
npm ng2-file-upload 7.0.2,7.0.3,8.0.1,8.0.2,8.0.3,9.0.1 2025-09-15 GHSA-f3v2-259r-f6jc
npm ngx-bootstrap 18.1.4,19.0.3,19.0.4,20.0.3,20.0.4,20.0.5,20.0.6 2025-09-15 GHSA-6m4g-vm7c-f8w6
npm ngx-color 10.0.1,10.0.2 2025-09-16 scttcper/ngx-color issue 384
npm ngx-toastr 19.0.1,19.0.2 2025-09-16 scttcper/ngx-toastr issue 1037
npm node-fabric * 2017-08-02 CVE-2017-16052
npm node-ipc 10.1.1,10.1.2 2022-03-16 GHSA-97m3-w2cp-4xx6
npm node-opencv * 2017-08-02 CVE-2017-16067
npm node-opensl * 2017-08-02 CVE-2017-16063
npm node-openssl * 2017-08-02 CVE-2017-16064
npm node-tkinter * 2017-08-02 CVE-2017-16062
npm nodecaffe * 2017-08-02 CVE-2017-16070
npm nodefabric * 2017-08-02 CVE-2017-16054
npm nodeffmpeg * 2017-08-02 CVE-2017-16069
npm nodemailer-js * 2017-08-02 CVE-2017-16071
npm nodemailer.js * 2017-08-02 CVE-2017-16072
npm nodemssql * 2017-08-02 CVE-2017-16057
npm noderequest * 2017-08-02 CVE-2017-16073
npm nodesqlite * 2017-08-02 CVE-2017-16049
npm nx 20.9.0,20.10.0,20.11.0,20.12.0,21.5.0,21.6.0,21.7.0,21.8.0 2025-08-27 GHSA-cxm3-wv7p-598c
npm openssl.js * 2017-08-02 CVE-2017-16065
npm plain-crypto-js * 2026-03-31 axios/axios issue 10597
npm proxy.js * 2017-08-02 CVE-2017-16076
npm rc 1.2.9,1.3.9,2.3.9 2021-11-04 GHSA-g2q5-5433-rhrf
npm scope-gatsby * 2025-08-14 MAL-2025-32808
npm shadowsock * 2017-08-02 CVE-2017-16078
npm simple-swizzle 0.2.3 2025-09-08 debug-js/debug issue 1005
npm slice-ansi 7.1.1 2025-09-08 debug-js/debug issue 1005
npm smb * 2017-08-02 CVE-2017-16079
npm sqliter * 2017-08-02 CVE-2017-16051
npm sqlserver * 2017-08-02 CVE-2017-16055
npm strip-ansi 7.1.1 2025-09-08 debug-js/debug issue 1005
npm supports-color 10.2.1 2025-09-08 debug-js/debug issue 1005
npm supports-hyperlinks 4.1.1 2025-09-08 debug-js/debug issue 1005
npm synckit 0.11.9 2025-07-18 GHSA-f29h-pxvx-f335
npm tkinter * 2017-08-02 CVE-2017-16061
npm ua-parser-js 0.7.29,0.8.0,1.0.0 2021-10-22 GHSA-pjwm-rvh2-c87w
npm wrap-ansi 9.0.1 2025-09-08 debug-js/debug issue 1005
npm xrpl 2.14.2,4.2.1,4.2.2,4.2.3,4.2.4 2025-04-22 CVE-2025-32965
pypi acqusition * 2017-09-09 SK-CSIRT-SA-20170909
pypi apidev-coop * 2017-09-09 SK-CSIRT-SA-20170909
pypi bzip * 2017-09-09 SK-CSIRT-SA-20170909
pypi coloramas * 2024-06-25 MAL-2024-4924
pypi colorayma * 2024-06-25 MAL-2024-4946
pypi colorfy * 2024-06-25 MAL-2024-4963
pypi colorm * 2024-06-25 MAL-2024-4968
pypi colormma * 2024-06-25 MAL-2024-4969
pypi colourama * 2018-10-27 tartley/colorama issue 202
pypi colourema * 2024-12-09 MAL-2024-11561
pypi crypt * 2017-09-09 SK-CSIRT-SA-20170909
pypi ctx 0.2.2,0.2.6 2022-05-24 PyPI 2022
pypi django-server * 2017-09-09 SK-CSIRT-SA-20170909
pypi jajajejejiji * 2019-06-05 pypi/warehouse issue 5962
pypi jeilyfish * 2019-12-01 jamesturk/jellyfish issue 126
pypi litellm 1.82.7,1.82.8 2026-03-24 MAL-2026-2144
pypi nflx-cloudsol-python-libs * 2021-08-09 pypi/warehouse issue 9894
pypi nflx-kragle-scripts * 2021-08-09 pypi/warehouse issue 9894
pypi pipcolorpkgv1 * 2023-05-04 ESET 2023
pypi pipcryptoaddonsv2 * 2023-05-04 ESET 2023
pypi pwd * 2017-09-09 SK-CSIRT-SA-20170909
pypi pycoulor * 2024-06-25 MAL-2024-5674
pypi python3-dateutil * 2019-12-01 dateutil/dateutil issue 984
pypi pythoncolourlibraryv1 * 2024-06-25 MAL-2024-5804
pypi pythoncryptolibrary * 2023-05-04 ESET 2023
pypi rstseuqe * 2019-06-05 pypi/warehouse issue 5962
pypi setup-tools * 2017-09-09 SK-CSIRT-SA-20170909
pypi syscolouringkitsv2 * 2023-05-04 ESET 2023
pypi telnet * 2017-09-09 SK-CSIRT-SA-20170909
pypi telnyx 4.87.1,4.87.2 2026-03-27 pypa/advisory-database pull request 271
pypi torchtriton * 2022-12-30 PyTorch 2022
pypi trippybhaiya * 2021-08-09 pypi/warehouse issue 9894
pypi ultralytics 8.3.41,8.3.42,8.3.45,8.3.46 2024-12-05 ultralytics/ultralytics issue 18027
pypi urlib3 * 2017-09-09 SK-CSIRT-SA-20170909
pypi urllib * 2017-09-09 SK-CSIRT-SA-20170909
rubygems awesome-bot 1.18.0 2019-08-20 CVE-2019-15224
rubygems bitcoin_vanity 4.3.3 2019-08-20 CVE-2019-15224
rubygems bootstrap-sass 3.2.0.3 2019-04-04 CVE-2019-10842
rubygems coming-soon 0.2.8 2019-08-20 CVE-2019-15224
rubygems datagrid 1.0.6 2019-07-31 CVE-2019-14281
rubygems doge-coin 1.0.2 2019-08-19 CVE-2019-15224
rubygems lita_coin 0.0.3 2019-08-20 CVE-2019-15224
rubygems omniauth_amazon 1.0.1 2019-08-20 CVE-2019-15224
rubygems paranoid2 1.1.6 2019-07-16 CVE-2019-13589
rubygems rest-client 1.6.10,1.6.11,1.6.12,1.6.13 2019-08-19 CVE-2019-15224
rubygems simple_captcha2 0.2.3 2019-07-31 CVE-2019-14282
rubygems strong_password 0.0.7 2019-07-05 CVE-2019-13354
"""
