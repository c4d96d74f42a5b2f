"""All attacks, kind by kind."""

from attack import Attack
from attacks_exhaust import ATTACKS as EXHAUST
from attacks_hosts import ATTACKS as HOSTS
from attacks_job import ATTACKS as JOB
from attacks_stay import ATTACKS as STAY
from attacks_steal import ATTACKS as STEAL
from attacks_tamper import ATTACKS as TAMPER
from attacks_terminal import ATTACKS as TERMINAL

ATTACKS: tuple[Attack, ...] = (*STEAL, *HOSTS, *STAY, *TAMPER, *EXHAUST, *TERMINAL, *JOB)
